<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct normalise){
    .x = ${x.ptr}, .scale = ${scale.ptr}, .offset = ${offset.ptr if offset else 0}, .y = ${y.ptr},
    ${loops(x.extent, keep_last=True, x=x, y=y)},
    .centred = ${int(attrs["centred"])}, .epsilon = ${c_float(attrs["epsilon"])},
});
