<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct arg_extreme){
    .x = ${x.ptr}, .y = ${y.ptr},
    ${loops(y.extent, x=x, y=y)},
    .count = ${x.extent[-1]}, .step = ${x.stride[-1]},
});
