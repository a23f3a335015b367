<%!
from deeploy.operators.elementwise import loops
%>\
<%
per_channel = mul.shape[0] > 1 or add.shape[0] > 1
%>\
${kernel}(&(struct residual_sum){
    .x = ${x.ptr}, .b = ${b.ptr}, .mul = ${mul.ptr}, .add = ${add.ptr}, .y = ${y.ptr},
    .terms = ${x.extent[0]}, .x_term = ${x.stride[0]},
    ${loops(y.extent, per_channel, x=x, b=b, y=y)},
    .mul_step = ${int(mul.shape[0] > 1)}, .add_step = ${int(add.shape[0] > 1)},
    .sum = {.shift = ${attrs["shift"]}, .even = ${attrs.get("even", -1)}, .low = ${c_int(attrs["low"])}, .high = ${c_int(attrs["high"])}},
    .result = {.shift = ${attrs["shift_sum"]}, .even = ${attrs.get("even_sum", -1)}, \
.low = ${c_int(attrs["low_sum"])}, .high = ${c_int(attrs["high_sum"])}},
    .mul_a = ${c_int(attrs["mul_a"])}, .mul_b = ${c_int(attrs["mul_b"])}, .offset = ${c_int(attrs["offset"])},
});
