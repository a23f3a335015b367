<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct fixed_l2_norm){
    .x = ${x.ptr}, .y = ${y.ptr}, ${loops(x.extent, keep_last=True, x=x, y=y)}, .zero_point = ${attrs["zero_point"]},
});
