<%
groups = attrs["group"]


def origin(axis):
    """From the first row or column of the full result to the first that the call computes, where the windows of x and of w begin at 0."""
    return attrs["pads"][axis] - attrs["strides"][axis] * x.first[1 + axis] - attrs["dilations"][axis] * w.first[axis]
%>\
${kernel}(&(struct conv2d_transpose){
    .x = ${x.ptr}, .w = ${w.ptr}, .y = ${y.ptr},
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]},
    .groups = ${groups}, .channels = ${extent["c"]}, .filters = (${y.extent[3]}) / ${groups},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]},
    .kernel_h = ${w.extent[0]}, .kernel_w = ${w.extent[1]},
    .stride_h = ${attrs["strides"][0]}, .stride_w = ${attrs["strides"][1]},
    .dilation_h = ${attrs["dilations"][0]}, .dilation_w = ${attrs["dilations"][1]},
    .top = ${origin(0)}, .left = ${origin(1)}, .zero_point = ${int(attrs["zero_point"])},
    .x_batch = ${x.stride[0]}, .x_row = ${x.stride[1]}, .x_column = ${x.stride[2]},
    .y_batch = ${y.stride[0]}, .y_row = ${y.stride[1]}, .y_column = ${y.stride[2]},
    .epilogue = ${epilogue},
});
