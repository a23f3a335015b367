<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct table_softmax){
    .x = ${x.ptr}, .table = ${table.ptr}, .y = ${y.ptr},
    ${loops(x.extent, keep_last=True, x=x, y=y)},
% if results is not None:
    .results = ${results.ptr}, .smallest = ${attrs["smallest"]},
% endif
    .levels = ${attrs["levels"]}, .zero_point = ${attrs["zero_point"]}, .low = ${attrs["low"]}, .high = ${attrs["high"]},
});
