<%
size = y.dtype.bytes
constants = "".join(f".{field} = (rt_address){context[name].ptr}, " for field, name in operands.items())
%>\
const struct neureka_dilated call = {
    .accelerator = ACCELERATOR_npu,
    .layer = {${", ".join(f".{name} = {value}" for name, value in layer.items())}},
    .tile = {
        ${constants}.x = (rt_address)${x.ptr}, .y = (rt_address)${y.ptr}, .weights = (rt_address)${w.ptr},
        .height = ${y.extent[1]}, .width = ${y.extent[2]}, .channels_in = ${x.extent[3]}, .channels_out = ${y.extent[3]},
        .x_pixel = ${x.stride[2]}, .x_row = ${x.stride[1]}, .y_pixel = ${y.stride[2] * size}, .y_row = ${y.stride[1] * size},
        .top = ${x.before[1]}, .left = ${x.before[2]}, .bottom = 0, .right = 0,
    },
    .images = ${y.extent[0]}, .x_image = ${x.stride[0]}, .y_image = ${y.stride[0] * size},
    .rows = ${x.extent[1]}, .columns = ${x.extent[2]},
};
${kernel}(&call);
