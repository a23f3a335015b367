<%
size = y.dtype.bytes
(stride_h, stride_w), (dilation_h, dilation_w) = attrs["strides"], attrs["dilations"]
runs_h, runs_w = runs
taps = extent["fh"] * extent["fw"] // (runs_h * runs_w)
inputs, outputs = block if attrs["group"] > 1 else (x.extent[3], y.extent[3])
%>\
const struct neureka_runs call = {
    .accelerator = ACCELERATOR_npu, .cores = rt_machine.cores,
    .layer = {${", ".join(f".{name} = {value}" for name, value in layer.items())}},
    .tile = {
        .x = 0, .y = (rt_address)${y.ptr}, .weights = (rt_address)${w.ptr},
        .height = ${y.extent[1]}, .width = ${y.extent[2]}, .channels_in = ${taps} * ${inputs}, .channels_out = ${y.extent[3]},
        .x_pixel = 0, .x_row = 0, .y_pixel = ${y.stride[2] * size}, .y_row = ${y.stride[1] * size},
        .top = 0, .left = 0, .bottom = 0, .right = 0,
    },
    .x = ${x.ptr}, .images = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]}, .channels = ${x.extent[3]},
    .block = ${inputs}, .block_out = ${outputs},
    .rows = (${y.extent[1]} - 1) * ${stride_h} + ${(extent["fh"] - 1) * dilation_h + 1},
    .columns = (${y.extent[2]} - 1) * ${stride_w} + ${(extent["fw"] - 1) * dilation_w + 1},
    .runs_h = ${runs_h}, .runs_w = ${runs_w}, .stride_h = ${stride_h}, .stride_w = ${stride_w},
    .dilation_h = ${dilation_h}, .dilation_w = ${dilation_w}, .top = ${x.before[1]}, .left = ${x.before[2]},
    .x_image = ${x.stride[0]}, .x_row = ${x.stride[1]}, .x_column = ${x.stride[2]}, .y_image = ${y.stride[0] * size},
    .w_run = ${w.stride[0]}, .w_channel = ${w.stride[1]},
    .padded = ${scratch["padded"]},
};
${kernel}(&call);
