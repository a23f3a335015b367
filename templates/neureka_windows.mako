<%
size = y.dtype.bytes
stride_h, stride_w = attrs["strides"]
dilation_h, dilation_w = attrs["dilations"]
constants = "".join(f".{field} = (rt_address){context[name].ptr}, " for field, name in operands.items())
%>\
const struct neureka_windows call = {
    .accelerator = ACCELERATOR_npu, .cores = rt_machine.cores,
    .layer = {${", ".join(f".{name} = {value}" for name, value in layer.items())}},
    .tile = {
        ${constants}.x = 0, .y = (rt_address)${y.ptr}, .weights = (rt_address)${w.ptr},
        .height = 1, .width = 1, .channels_in = ${extent["fh"] * extent["fw"] * extent["c"]}, .channels_out = ${y.extent[3]},
        .x_pixel = ${pitch}, .x_row = 0, .y_pixel = ${y.stride[2] * size}, .y_row = 0, .top = 0, .left = 0, .bottom = 0, .right = 0,
    },
    .x = ${x.ptr}, .images = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]}, .channels = ${extent["c"]},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]}, .kernel_h = ${extent["fh"]}, .kernel_w = ${extent["fw"]},
    .stride_h = ${stride_h}, .stride_w = ${stride_w}, .dilation_h = ${dilation_h}, .dilation_w = ${dilation_w},
    .top = ${x.before[1]}, .left = ${x.before[2]},
    .x_image = ${x.stride[0]}, .x_row = ${x.stride[1]}, .x_column = ${x.stride[2]}, .y_image = ${y.stride[0] * size},
    .windows = ${scratch["windows"]}, .band = ${band}, .pitch = ${pitch},
};
${kernel}(&call);
