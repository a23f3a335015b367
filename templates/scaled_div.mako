<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct scaled_div){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    ${loops(y.extent, a=a, b=b, y=y)},
    .a_zero_point = ${attrs["a_zero_point"]}, .b_zero_point = ${attrs["b_zero_point"]}, .zero_point = ${attrs["zero_point"]},
    .mul = ${c_int(attrs["mul"])}, .shift = ${attrs["shift"]}, .low = ${attrs["low"]}, .high = ${attrs["high"]},
});
