${kernel}(&(struct pulp_average_pool2d){
    .x = ${x.ptr}, .y = ${y.ptr},
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]}, .channels = ${y.extent[3]},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]},
    .kernel_h = ${attrs["kernel"][0]}, .kernel_w = ${attrs["kernel"][1]},
    .stride_h = ${attrs["strides"][0]}, .stride_w = ${attrs["strides"][1]},
    .dilation_h = ${attrs["dilations"][0]}, .dilation_w = ${attrs["dilations"][1]},
    .top = ${x.before[1]}, .left = ${x.before[2]},
    .count_include_pad = ${int(attrs["count_include_pad"])}, .zero_point = ${int(attrs["zero_point"])},
    .x_batch = ${x.stride[0]}, .x_row = ${x.stride[1]}, .x_column = ${x.stride[2]},
    .y_batch = ${y.stride[0]}, .y_row = ${y.stride[1]}, .y_column = ${y.stride[2]},
    .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
});
