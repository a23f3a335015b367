<% groups = attrs["group"] %>\
${kernel}(&(struct pulp_conv2d){
    .x = ${x.ptr}, .w = ${w.ptr}, .y = ${y.ptr},
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]},
    .groups = ${groups}, .channels = ${extent["c"]},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]},
    .kernel_h = ${extent["fh"]}, .kernel_w = ${extent["fw"]},
    .stride_h = ${attrs["strides"][0]}, .stride_w = ${attrs["strides"][1]},
    .dilation_h = ${attrs["dilations"][0]}, .dilation_w = ${attrs["dilations"][1]},
    .top = ${x.before[1]}, .left = ${x.before[2]}, .zero_point = ${int(attrs["zero_point"])},
    .x_batch = ${x.stride[0]}, .x_row = ${x.stride[1]}, .x_column = ${x.stride[2]},
    .y_batch = ${y.stride[0]}, .y_row = ${y.stride[1]}, .y_column = ${y.stride[2]},
% if "windows" in scratch:
    .windows = ${scratch["windows"]}, .room = ${room}, .pitch = ${pitch}, .is_filled = ${is_filled},
% endif
    .product = {
        .depth = ${row}, .filters = (${y.extent[3]}) / ${groups}, .w_row = ${row},
        .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
    },
});
