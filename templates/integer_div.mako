<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct integer_div){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    ${loops(y.extent, a=a, b=b, y=y)},
    .factor = ${c_int(attrs["factor"])}, .scale = ${c_int(attrs["scale"])}, .offset = ${c_int(attrs["offset"])},
});
