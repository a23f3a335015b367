<%!
def four(values, filler):
    return "{" + ", ".join(map(str, [filler] * (4 - len(values)) + list(values))) + "}"


def has_batches(extents):
    return any(extent != 1 for extent in extents)
%>\
${kernel}(&(struct pulp_matmul_columns){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
% if has_batches(y.extent[:-2]):
    .batches = &(struct batches){
        ${four(y.extent[:-2], 1)}, ${four(a.stride[:-2], 0)}, ${four(b.stride[:-2], 0)}, ${four(y.stride[:-2], 0)},
    },
% else:
    .batches = 0,
% endif
    .rows = ${y.extent[-2]}, .columns = ${y.extent[-1]},
    .a_row = ${a.stride[-2]}, .b_row = ${b.stride[-2]}, .y_row = ${y.stride[-2]},
    .turned = ${scratch["turned"]},
% if "row_sums" in scratch:
    .zeros = &(struct pulp_zeros){
        ${attrs["a_zero_point"]}, ${attrs["b_zero_point"]},
        ${scratch["row_sums"]}, ${scratch["column_sums"]},
    },
% else:
    .zeros = 0,
% endif
    .product = {
        .depth = ${extent["k"]}, .filters = 4, .w_row = ${scratch["turned"].bytes // 4},
        .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
    },
});
