<%
def trailing(operand, dim):
    """Stride of the operand along a dimension of its last two axes, whichever way they are stored."""
    axes = geometry.nest.reads[operand].axes
    axis = next(i for i in (-1, -2) if axes[i].bare().name == dim)
    return {"a": a, "b": b}[operand].stride[axis]

def four(values, filler):
    return "{" + ", ".join(map(str, [filler] * (4 - len(values)) + list(values))) + "}"
%>\
${kernel}(&(struct matmul_dot){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    .batch = ${four(y.extent[:-2], 1)},
    .a_batch = ${four(a.stride[:-2], 0)}, .b_batch = ${four(b.stride[:-2], 0)}, .y_batch = ${four(y.stride[:-2], 0)},
    .rows = ${y.extent[-2]}, .columns = ${y.extent[-1]}, .depth = ${extent["k"]},
    .a_row = ${trailing("a", "m")}, .a_depth = ${trailing("a", "k")},
    .b_column = ${trailing("b", "n")}, .y_row = ${y.stride[-2]},
    .a_zero_point = ${int(attrs["a_zero_point"])}, .b_zero_point = ${int(attrs["b_zero_point"])},
    .epilogue = ${epilogue},
});
