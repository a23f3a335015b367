<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct lookup){
    .x = ${x.ptr}, .table = ${table.ptr}, .y = ${y.ptr},
    ${loops(y.extent, x=x, y=y)},
    .smallest = ${x.dtype.range[0]},
});
