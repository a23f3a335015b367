${kernel}(&(struct pulp_matmul_sums){
    .part = {
        .a = ${a.ptr}, .b = ${b.ptr}, .y = ${sums.ptr}, .batches = 0,
        .rows = ${y.extent[-2]}, .a_row = ${a.stride[-2]}, .y_row = ${sums.stride[-2]}, .zeros = 0,
        .product = {
            .depth = ${a.extent[-1]}, .filters = ${y.extent[-1]}, .w_row = ${b.stride[-2]},
            .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
        },
    },
    .kept = {
        .y = ${y.ptr}, .is_first = (${a.first[-1]}) == 0, .is_last = (${a.first[-1]}) + (${a.extent[-1]}) == ${extent["k"]},
        .high = 1, .wide = ${y.extent[-2]},
        .sums_row = 0, .sums_column = ${sums.stride[-2]}, .y_row = 0, .y_column = ${y.stride[-2]},
    },
});
