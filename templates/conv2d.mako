<%
# Constant weights are stored [kernel_h, kernel_w, channels, out_channels], others lie in the order of the graph.
w_strides = [w.stride[i] for i in ((0, 1, 2, 3) if node.inputs[1].data is not None else (2, 3, 1, 0))]
%>\
${kernel}(&(struct conv2d){
    .x = x, .w = w, .y = y,
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]}, .channels = ${x.extent[3]},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]}, .out_channels = ${y.extent[3]}, .groups = ${attrs["group"]},
    .kernel_h = ${extent["fh"]}, .kernel_w = ${extent["fw"]},
    .stride_h = ${attrs["strides"][0]}, .stride_w = ${attrs["strides"][1]},
    .dilation_h = ${attrs["dilations"][0]}, .dilation_w = ${attrs["dilations"][1]},
    .top = ${x.before[1]}, .left = ${x.before[2]}, .zero_point = ${attrs["zero_point"]},
    .x_batch = ${x.stride[0]}, .x_row = ${x.stride[1]}, .x_column = ${x.stride[2]},
    .y_batch = ${y.stride[0]}, .y_row = ${y.stride[1]}, .y_column = ${y.stride[2]},
    .w_h = ${w_strides[0]}, .w_w = ${w_strides[1]}, .w_c = ${w_strides[2]}, .w_k = ${w_strides[3]},
    .epilogue = ${epilogue},
});
