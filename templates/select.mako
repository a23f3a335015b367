<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct select){
    .condition = ${condition.ptr}, .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    ${loops(y.extent, condition=condition, a=a, b=b, y=y)},
});
