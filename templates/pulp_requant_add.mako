<%!
from deeploy.operators.elementwise import loops
from deeploy.operators.staircase import of_operand
%>\
<%def name="scale(index)">\
<%
    found = of_operand(node, index)
    low, high = (attrs[name + "ab"[index]] for name in ("low_", "high_"))
%>\
{.mul = ${c_int(found.mul.item())}, .add = ${c_int(found.add.item())}, .shift = ${found.shift}, \
.low = ${c_int(low)}, .high = ${c_int(high)}}\
</%def>\
${kernel}(&(struct pulp_requant_add){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    ${loops(y.extent, a=a, b=b, y=y)},
    .a_scale = ${scale(0)},
    .b_scale = ${scale(1)},
    .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
});
