<%! from deeploy.operators.elementwise import loops%>\
<%def name="scale(name)">\
{.mul = ${c_int(attrs["mul_" + name])}, .add = ${c_int(attrs["add_" + name])}, .shift = ${attrs["shift_" + name]},
                .low = ${c_int(attrs["low_" + name])}, .high = ${c_int(attrs["high_" + name])}}\
</%def>\
${kernel}(&(struct requant_add){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    ${loops(y.extent, keep_last=bool(node.epilogue), a=a, b=b, y=y)},
    .a_scale = ${scale("a")},
    .b_scale = ${scale("b")},
    .epilogue = ${epilogue},
});
