<%namespace name="window" file="window.mako"/>\
${kernel}(&(struct pulp_conv2d_sums){
    .part = {
        .x = ${x.ptr}, .w = ${w.ptr}, .y = ${sums.ptr},
        .batch = 1, .height = ${x.extent[1]}, .width = ${x.extent[2]},
        .groups = 1, .channels = ${x.extent[3]},
        .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]},
        .kernel_h = ${extent["fh"]}, .kernel_w = ${extent["fw"]},
        ${window.steps(attrs)}
        .top = ${x.before[1]}, .left = ${x.before[2]}, .zero_point = ${int(attrs["zero_point"])},
        ${window.images(x, sums)}
% if "patch" in scratch:
        .patch = ${scratch["patch"]}, .room = ${scratch["patch"].bytes - 4},
% endif
        .product = {
            .depth = (${x.extent[3]}) * ${extent["fh"] * extent["fw"]}, .filters = ${y.extent[3]}, .w_row = ${w.stride[0]},
            .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
        },
    },
    .kept = {
        .y = ${y.ptr}, .is_first = (${x.first[3]}) == 0, .is_last = (${x.first[3]}) + (${x.extent[3]}) == ${extent["c"]},
        .high = ${y.extent[1]}, .wide = ${y.extent[2]},
        .sums_row = ${sums.stride[1]}, .sums_column = ${sums.stride[2]}, .y_row = ${y.stride[1]}, .y_column = ${y.stride[2]},
    },
});
