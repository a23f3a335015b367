${kernel}(&(struct pulp_depthwise){
    .x = ${x.ptr}, .w = ${w.ptr}, .y = ${y.ptr},
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]}, .channels = ${y.extent[3]},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]}, .stride_h = ${attrs["strides"][0]},
    .top = ${x.before[1]}, .left = ${x.before[2]}, .zero_point = ${int(attrs["zero_point"])},
    .x_batch = ${x.stride[0]}, .x_row = ${x.stride[1]}, .x_column = ${x.stride[2]},
    .y_batch = ${y.stride[0]}, .y_row = ${y.stride[1]}, .y_column = ${y.stride[2]},
    .columns = ${scratch["columns"]}, .room = ${scratch["columns"].bytes // 16},
    .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
});
