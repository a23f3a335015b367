<%! from deeploy.operators.elementwise import loops %>\
${kernel}(&(struct pulp_quantize){
    .x = x, .scale = scale, .zero_point = zero_point, .y = y,
    ${loops(y.extent, x=x, y=y)},
    .low = ${attrs["low"]}, .high = ${attrs["high"]},
});
