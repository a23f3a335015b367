<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct copy){
    .x = ${x.ptr}, .y = ${y.ptr},
    ${loops(y.extent, x=x, y=y)},
});
