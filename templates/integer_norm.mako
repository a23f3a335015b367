<%! from deeploy.operators.elementwise import loops%>\
<% bias = context.get("bias", None) %>\
${kernel}(&(struct integer_norm){
    .x = ${x.ptr}, .weight = ${weight.ptr}, .bias = ${bias.ptr if bias else 0}, .y = ${y.ptr},
    ${loops(x.extent, keep_last=True, x=x, y=y)},
    .shift = ${attrs["shift"]},
});
