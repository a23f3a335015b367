<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct scaled_add){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    ${loops(y.extent, a=a, b=b, y=y)},
    .mul_a = ${c_int(attrs["mul_a"])}, .mul_b = ${c_int(attrs["mul_b"])}, .add = ${c_int(attrs["add"])},
    .shift = ${attrs["shift"]}, .even = ${attrs.get("even", -1)}, .low = ${attrs["low"]}, .high = ${attrs["high"]},
});
