<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct unary){
    .x = ${x.ptr}, .y = ${y.ptr},
    ${loops(y.extent, x=x, y=y)},
    .alpha = ${c_float(attrs["alpha"])}, .beta = ${c_float(attrs["beta"])},
});
