${kernel}(&(struct running_sum){
    .x = ${x.ptr}, .y = ${y.ptr},
    .extent = {${x.extent[0]}, ${x.extent[1]}, ${x.extent[2]}},
    .x_step = {${x.stride[0]}, ${x.stride[1]}}, .y_step = {${y.stride[0]}, ${y.stride[1]}},
    .exclusive = ${int(attrs["exclusive"])}, .reverse = ${int(attrs["reverse"])},
});
