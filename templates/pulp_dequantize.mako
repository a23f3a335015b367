<%! from deeploy.operators.elementwise import loops %>\
${kernel}(&(struct pulp_dequantize){
    .x = x, .scale = scale, .zero_point = zero_point, .y = y,
    ${loops(y.extent, x=x, y=y)},
});
