<%
# The batch axes of the result, and the strides of each operand over them, both filled up to four.
rank = len(y.extent) - 2
batch = [1] * (4 - rank) + list(y.extent[:-2])

def over_batch(view):
    axes = list(view.stride[:-2])
    return [0] * (4 - len(axes)) + axes

a_row, a_depth = (a.stride[-1], a.stride[-2]) if attrs["trans_a"] else (a.stride[-2], a.stride[-1])
transposed = attrs["trans_b"] and node.inputs[1].data is None
b_depth, b_column = (b.stride[-1], b.stride[-2]) if transposed else (b.stride[-2], b.stride[-1])
braces = lambda values: "{" + ", ".join(map(str, values)) + "}"
%>\
${kernel}(&(struct matmul){
    .a = a, .b = b, .y = y,
    .batch = ${braces(batch)},
    .a_batch = ${braces(over_batch(a))}, .b_batch = ${braces(over_batch(b))}, .y_batch = ${braces(over_batch(y))},
    .rows = ${y.extent[-2]}, .columns = ${y.extent[-1]}, .depth = ${extent["k"]},
    .a_row = ${a_row}, .a_depth = ${a_depth}, .b_depth = ${b_depth}, .b_column = ${b_column}, .y_row = ${y.stride[-2]},
    .a_zero_point = ${attrs["a_zero_point"]}, .b_zero_point = ${attrs["b_zero_point"]},
    .epilogue = ${epilogue},
});
