<%! from deeploy.operators.elementwise import loops%>\
<% bias = context.get("bias", None) %>\
${kernel}(&(struct pulp_integer_norm){
    .x = ${x.ptr}, .weight = ${weight.ptr}, .bias = ${bias.ptr if bias else 0}, .y = ${y.ptr},
    .columns = ${x.extent[-1]}, .first = ${y.first[-1]},
    ${loops(y.extent, keep_last=True, x=x, y=y)},
    .shift = ${attrs["shift"]},
});
