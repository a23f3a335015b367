<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct standardise){
    .x = ${x.ptr}, .y = ${y.ptr},
    ${loops(x.extent, keep_last=True, x=x, y=y)},
    .zero_point = ${attrs["zero_point"]}, .fraction = ${attrs["fraction"]}, .epsilon = ${c_int(attrs["epsilon"])},
    .epilogue = ${epilogue},
});
