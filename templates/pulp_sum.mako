<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct pulp_sum){
    .x = ${x.ptr}, .y = ${y.ptr}, .terms = ${x.extent[0]}, .x_term = ${x.stride[0]},
    ${loops(y.extent, per_channel, 3, x=x, y=y)},
    .mul = ${context["mul"].ptr if per_channel else 0}, .add = ${context["add"].ptr if per_channel else 0}, .requantisation = ${requantisation},
    .low = ${c_int(attrs.get("low", 0))}, .high = ${c_int(attrs.get("high", 0))},
});
