<%! from deeploy.operators.elementwise import loops %>\
${kernel}(&(struct dequantize){
    .x = x, .scale = scale, .zero_point = zero_point, .y = y,
    ${loops(y.extent, x=x, scale=scale, zero_point=zero_point, y=y)},
});
