<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct pulp_quantize){
    .x = ${x.ptr}, .scale = ${scale.ptr}, .zero_point = ${zero_point.ptr}, .y = ${y.ptr},
    ${loops(y.extent, x=x, y=y)},
    .low = ${attrs["low"]}, .high = ${attrs["high"]},
});
