<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct integer_function){
    .x = ${x.ptr}, .y = ${y.ptr},
    ${loops(y.extent, x=x, y=y)},
    .a = ${c_int(attrs["a"])}, .b = ${c_int(attrs["b"])}, .c = ${c_int(attrs["c"])},
});
