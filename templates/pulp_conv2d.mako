<%
groups = attrs["group"]
depth = f'{extent["fh"] * extent["fw"] * extent["c"]}'
pitch = -(-int(depth) // 4) * 4
windows = scratch.get("windows")
# As the declarations make room, for each of eight cores: four windows, or as many as a row has; filters that are filled up to whole words; a
# word. Where so many windows were too much, two, or one.
most = 48 * 1024 // 8
room = 4 if min(4, extent["ow"]) * int(depth) <= most else min(2, most // pitch)
filled = extent["k"] if room == 4 and groups == 1 and pitch != int(depth) and pitch * extent["k"] <= 4096 else 0
slots = 4 + filled if filled else min(4, extent["ow"]) if room == 4 else room
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
    .windows = (uint8_t *)${windows} + rt_core() * ${slots * pitch + 4}, .room = ${room}, .pitch = ${pitch}, .is_filled = ${int(filled > 0)},
% endif
    .product = {
        .depth = ${row}, .filters = (${y.extent[3]}) / ${groups}, .w_row = ${row},
        .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
    },
});
