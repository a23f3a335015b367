${kernel}(&(struct dynamic_scale){
    .low = ${low.ptr}, .high = ${high.ptr}, .scale = ${scale.ptr}, .zero_point = ${zero_point.ptr}, .count = ${scale.extent[0]},
    .low_step = ${low.stride[0]}, .high_step = ${high.stride[0]},
    .scale_step = ${scale.stride[0]}, .zero_point_step = ${zero_point.stride[0]},
});
