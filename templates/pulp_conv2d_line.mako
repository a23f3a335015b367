${kernel}(&(struct pulp_matmul){
    .a = ${x.ptr}, .b = ${w.ptr}, .y = ${y.ptr}, .batches = 0,
    .rows = ${y.extent[2]}, .a_row = (${x.stride[2]}) * ${attrs["strides"][1]}, .y_row = ${y.stride[2]}, .zeros = 0,
    .product = {
        .depth = ${extent["fw"]} * ${extent["c"]}, .filters = ${y.extent[3]}, .w_row = ${w.stride[0]},
        .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
    },
});
