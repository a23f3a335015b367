<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct requant_shift){
    .x = ${x.ptr}, .mul = ${mul.ptr}, .add = ${add.ptr}, .y = ${y.ptr},
    ${loops(y.extent, x=x, mul=mul, add=add, y=y)},
    .shift = ${attrs["shift"]}, .low = ${c_int(attrs["low"])}, .high = ${c_int(attrs["high"])},
});
