<%
size = y.dtype.bytes
stride_h, stride_w = attrs["strides"]
constants = "".join(f".{field} = (rt_address){context[name].ptr}, " for field, name in operands.items())
right = f"({y.extent[2]} - 1) * {stride_w} + 3 - ({x.before[2]}) - {x.extent[2]}"
%>\
const struct neureka_subsampled call = {
    .accelerator = ACCELERATOR_npu, .cores = rt_machine.cores,
    .layer = {${", ".join(f".{name} = {value}" for name, value in layer.items())}},
    .tile = {
        ${constants}.x = (rt_address)${x.ptr}, .y = (rt_address)${y.ptr}, .weights = (rt_address)${w.ptr},
        .height = ${y.extent[1]}, .width = ${y.extent[2]}, .channels_in = ${x.extent[3]}, .channels_out = ${y.extent[3]},
        .x_pixel = ${x.stride[2]}, .x_row = ${x.stride[1]}, .y_pixel = ${y.stride[2] * size}, .y_row = ${y.stride[1] * size},
        .top = ${x.before[1]}, .left = ${x.before[2]}, .bottom = 0, .right = ${right},
    },
    .images = ${y.extent[0]}, .x_image = ${x.stride[0]}, .y_image = ${y.stride[0] * size}, .rows = ${x.extent[1]},
    .stride_h = ${stride_h}, .stride_w = ${stride_w}, .pixel = ${y.extent[3] * size},
    .all = ${scratch["all"]}, .band = ${band},
};
${kernel}(&call);
