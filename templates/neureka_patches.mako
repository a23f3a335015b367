<%
size = y.dtype.bytes
stride_h, stride_w = attrs["strides"]
constants = "".join(f".{field} = (rt_address){context[name].ptr}, " for field, name in operands.items())
block = extent["fh"] * extent["c"]
columns = f'(({y.extent[2]} - 1) * {stride_w} + {extent["fw"]})'
%>\
const struct neureka_patches call = {
    .accelerator = ACCELERATOR_npu, .cores = rt_machine.cores,
    .layer = {${", ".join(f".{name} = {value}" for name, value in layer.items())}},
    .tile = {
        ${constants}.x = 0, .y = (rt_address)${y.ptr}, .weights = (rt_address)${w.ptr},
        .height = ${y.extent[1]}, .width = ${y.extent[2]}, .channels_in = ${block * extent["fw"]}, .channels_out = ${y.extent[3]},
        .x_pixel = ${block * stride_w}, .x_row = ${columns} * ${block}, .y_pixel = ${y.stride[2] * size}, .y_row = ${y.stride[1] * size},
        .top = 0, .left = 0, .bottom = 0, .right = 0,
    },
    .x = ${x.ptr}, .images = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]}, .channels = ${extent["c"]},
    .kernel_h = ${extent["fh"]}, .dilation_h = ${attrs["dilations"][0]}, .stride_h = ${stride_h},
    .top = ${x.before[1]}, .left = ${x.before[2]}, .columns = ${columns},
    .x_image = ${x.stride[0]}, .x_row = ${x.stride[1]}, .y_image = ${y.stride[0] * size},
    .patches = ${scratch["patches"]}, .band = ${band},
};
${kernel}(&call);
