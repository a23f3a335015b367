<%! from deeploy.operators.elementwise import loops %>\
${kernel}(&(struct lookup){
    .x = x, .table = table, .y = y,
    ${loops(y.extent, x=x, y=y)},
    .smallest = ${x.dtype.range[0]},
});
