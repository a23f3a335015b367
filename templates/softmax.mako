<%! from deeploy.operators.elementwise import loops %>\
${kernel}(&(struct softmax){
    .x = ${x.ptr}, .y = ${y.ptr},
    ${loops(x.extent, keep_last=True, x=x, y=y)},
% if not x.dtype.is_float:
    .table = table, .levels = ${attrs["levels"]}, .zero_point = ${attrs["zero_point"]}, .low = ${attrs["low"]}, .high = ${attrs["high"]},
% endif
});
