<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct fixed_softmax){
    .x = ${x.ptr}, .table = ${table.ptr}, .y = ${y.ptr},
    ${loops(x.extent, keep_last=True, x=x, y=y)},
    .zero_point = ${attrs["zero_point"]}, .low = ${attrs["low"]}, .high = ${attrs["high"]},
});
