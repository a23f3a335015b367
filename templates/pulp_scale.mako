<%!
from deeploy.operators.elementwise import loops
%>\
<%
operands = {name: context[view] for name, view in ({"a": "a", "b": "b"} if node.op == "Add" else {"a": "x"}).items()}
%>\
${kernel}(&(struct pulp_scale){
% for name, view in operands.items():
    .${name} = ${view.ptr},
% endfor
    .y = ${y.ptr}, ${loops(y.extent, **operands, y=y)},
    .mul = ${mul.ptr}, .add = ${add.ptr},
    .epilogue = {.low = ${attrs["low"]}, .high = ${attrs["high"]}}, .requantisation = ${requantisation},
});
