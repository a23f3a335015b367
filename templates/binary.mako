<%! from deeploy.operators.elementwise import loops%>\
${kernel}(&(struct binary){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr}, .operation = ${operation},
    ${loops(y.extent, keep_last=bool(node.epilogue), a=a, b=b, y=y)},
    .a_zero_point = ${attrs.get("a_zero_point", 0)}, .b_zero_point = ${attrs.get("b_zero_point", 0)},
    .epilogue = ${epilogue},
});
