<%! from deeploy.operators.elementwise import loops %>\
<%
def halves(name, value):
    return f".{name}_low = {value & 0xFFFF}, .{name}_high = {c_int(value >> 16)}"
%>\
${kernel}(&(struct pulp_scaled_add){
    .a = a, .b = b, .y = y,
    ${loops(y.extent, a=a, b=b, y=y)},
    ${halves("a", attrs["mul_a"])}, ${halves("b", attrs["mul_b"])}, ${halves("add", attrs["add"])},
    .shift = ${attrs["shift"] - 16}, .low = ${attrs["low"]}, .high = ${attrs["high"]},
});
