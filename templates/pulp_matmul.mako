<%!
def four(values, filler):
    return "{" + ", ".join(map(str, [filler] * (4 - len(values)) + list(values))) + "}"
%>\
${kernel}(&(struct pulp_matmul){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    .batch = ${four(y.extent[:-2], 1)},
    .a_batch = ${four(a.stride[:-2], 0)}, .b_batch = ${four(b.stride[:-2], 0)}, .y_batch = ${four(y.stride[:-2], 0)},
    .rows = ${y.extent[-2]}, .a_row = ${a.stride[-2]}, .y_row = ${y.stride[-2]},
    .product = {
        .depth = ${extent["k"]}, .filters = ${y.extent[-1]}, .w_row = ${b.stride[-2]},
        .epilogue = ${epilogue}, .requantisation = ${requantisation},
    },
});
