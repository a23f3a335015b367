<%!
from deeploy.operators import scaled
from deeploy.operators.elementwise import loops
%>\
<%
found = scaled.of_node(node)
values = {"a": found.mul_a, "b": found.mul_b, "add": found.add}
names = {"a": "a_mul", "b": "b_mul", "add": "add"}
cut = 16 if found.form == "halves" else 0
%>\
${kernel}(&(struct scaled_sum){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    ${loops(y.extent, a=a, b=b, y=y)},
% for name, value in values.items():
    .${names[name]} = ${c_int(value >> cut)}, .${name}_low = ${value & ((1 << cut) - 1)},
% endfor
    .shift = ${found.shift - cut}, .low = ${attrs["low"]}, .high = ${attrs["high"]},
});
