<%!
from deeploy.operators import scaled
from deeploy.operators.elementwise import loops
%>\
<%
found = scaled.of_node(node)
%>\
${kernel}(&(struct pulp_residual_sum){
    .x = ${x.ptr}, .b = ${b.ptr}, .y = ${y.ptr}, .terms = ${x.extent[0]}, .x_term = ${x.stride[0]},
    ${loops(y.extent, per_channel, 3, x=x, b=b, y=y)},
    .mul = ${context["mul"].ptr if per_channel else 0}, .add = ${context["add"].ptr if per_channel else 0}, .requantisation = ${requantisation},
    .low = ${c_int(attrs["low"])}, .high = ${c_int(attrs["high"])},
    .a_mul = ${c_int(found.mul_a)}, .b_mul = ${c_int(found.mul_b)}, .offset = ${c_int(found.add)}, .result_shift = ${found.shift},
    .result_low = ${c_int(attrs["low_sum"])}, .result_high = ${c_int(attrs["high_sum"])},
});
