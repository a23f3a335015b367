<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct pairwise){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    ${loops(y.extent, a=a, b=b, y=y)},
});
