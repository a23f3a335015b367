<%!
from deeploy.operators.elementwise import loops
%>\
<%
operands = {"a": context["x"]} if "x" in context.keys() else {"a": context["a"], "b": context["b"]}
%>\
${kernel}(&(struct pulp_scale){
% for name, view in operands.items():
    .${name} = ${view.ptr},
% endfor
% if len(operands) == 1:
    .b = 0, .b_step = {0, 0, 0, 0, 0, 0},
% endif
    .y = ${y.ptr}, ${loops(y.extent, **operands, y=y)},
    .a_zero_point = ${attrs.get("a_zero_point", 0)}, .b_zero_point = ${attrs.get("b_zero_point", 0)},
    .epilogue = ${complete({**epilogue.fields, "low": attrs["low"], "high": attrs["high"]})}, .requantisation = ${requantisation},
});
