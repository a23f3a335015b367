<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct pulp_standardise){
    .x = ${x.ptr}, .y = ${y.ptr},
    .columns = ${x.extent[-1]}, .first = ${y.first[-1]},
    ${loops(y.extent, keep_last=True, x=x, y=y)},
    .zero_point = ${attrs["zero_point"]}, .fraction = ${attrs["fraction"]}, .epsilon = ${c_int(attrs["epsilon"])},
    .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
});
