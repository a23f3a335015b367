${kernel}(&(struct thresholds){
    .x = ${x.ptr}, .t = ${t.ptr}, .y = ${y.ptr},
    .extent = {${x.extent[0]}, ${x.extent[1]}, ${x.extent[2]}},
    .x_step = {${x.stride[0]}, ${x.stride[1]}}, .y_step = {${y.stride[0]}, ${y.stride[1]}},
    .t_step = ${0 if t.shape[0] == 1 else t.stride[0]}, .count = ${t.extent[1]},
});
