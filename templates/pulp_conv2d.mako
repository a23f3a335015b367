<%
groups = attrs["group"]
depth = f'{extent["fh"] * extent["fw"] * extent["c"]}'
pitch = -(-int(depth) // 4) * 4
windows = scratch.get("windows")
# As the declaration makes room, for each core: windows, at most as many as a row has; filters that are filled up to whole words; the skew.
filled = extent["k"] if groups == 1 and pitch != int(depth) and pitch * extent["k"] <= most_filled else 0
slots = room + filled if filled else min(room, extent["ow"])
row = pitch if windows and filled else depth
%>\
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
% if windows:
    .windows = (uint8_t *)${windows} + rt_core() * ${slots * pitch + skew}, .room = ${room}, .pitch = ${pitch}, .is_filled = ${int(filled > 0)},
% endif
    .product = {
        .depth = ${row}, .filters = (${y.extent[3]}) / ${groups}, .w_row = ${row},
        .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
    },
});
