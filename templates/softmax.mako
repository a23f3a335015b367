<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct softmax){
    .x = ${x.ptr}, .y = ${y.ptr},
    ${loops(x.extent, keep_last=True, x=x, y=y)},
});
