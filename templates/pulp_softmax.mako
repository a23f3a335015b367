<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct pulp_softmax){
    .x = ${x.ptr}, .table = ${table.ptr}, .y = ${y.ptr},
    .columns = ${x.extent[-1]}, .first = ${y.first[-1]},
    ${loops(y.extent, keep_last=True, x=x, y=y)},
    .results = ${results.ptr if results is not None else 0}, .smallest = ${attrs.get("smallest", 0)},
    .levels = ${attrs["levels"]}, .zero_point = ${attrs["zero_point"]}, .low = ${attrs["low"]}, .high = ${attrs["high"]},
    .bits = ${bits},
});
