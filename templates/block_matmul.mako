<%
def four(values, filler):
    return "{" + ", ".join(map(str, [filler] * (4 - len(values)) + list(values))) + "}"
%>\
${kernel}(&(struct block_matmul){
    .a = ${a.ptr}, .b = ${b.ptr}, .scales = ${scales.ptr}, .zeros = ${zeros.ptr if zeros else 0}, .y = ${y.ptr},
    .batch = ${four(y.extent[:-2], 1)},
    .a_batch = ${four(a.stride[:-2], 0)}, .y_batch = ${four(y.stride[:-2], 0)},
    .rows = ${y.extent[-2]}, .columns = ${y.extent[-1]}, .depth = ${extent["k"]}, .size = ${attrs["size"]},
    .a_row = ${a.stride[-2]}, .y_row = ${y.stride[-2]},
    .b_column = ${b.stride[-2]}, .scales_column = ${scales.stride[-2]}, .zeros_column = ${zeros.stride[-2] if zeros else 0},
    .epilogue = ${epilogue},
});
