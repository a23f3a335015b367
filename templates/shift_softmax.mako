<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct shift_softmax){
    .x = ${x.ptr}, .y = ${y.ptr},
    ${loops(x.extent, keep_last=True, x=x, y=y)},
    .group = ${attrs["group"]}, .numerator = ${c_int(attrs["numerator"])},
});
