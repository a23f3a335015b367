<%! from deeploy.operators.elementwise import loops %>\
${kernel}(&(struct requant_shift){
    .x = x, .mul = mul, .add = add, .y = y,
    ${loops(y.extent, x=x, mul=mul, add=add, y=y)},
    .shift = ${attrs["shift"]}, .low = ${c_int(attrs["low"])}, .high = ${c_int(attrs["high"])},
});
