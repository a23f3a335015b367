<%!
from deeploy.operators.elementwise import loops
%>\
<%
operands = {name: context[view] for name, view in ({"a": "x"} if node.op == "RequantShift" else {"a": "a", "b": "b"}).items()}
%>\
${kernel}(&(struct pulp_scale){
% for name, view in operands.items():
    .${name} = ${view.ptr},
% endfor
    .y = ${y.ptr}, ${loops(y.extent, **operands, y=y)},
% if node.op == "Mul":
    .a_zero_point = ${attrs["a_zero_point"]}, .b_zero_point = ${attrs["b_zero_point"]},
% endif
    .epilogue = {.low = ${attrs["low"]}, .high = ${attrs["high"]}}, .requantisation = ${requantisation},
});
