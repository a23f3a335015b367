${kernel}(&(struct fixed_fourier){
    .x = ${x.ptr}, .w = ${w.ptr}, .y = ${y.ptr}, .rows = ${x.extent[0]}, .points = ${x.extent[1]},
    .x_step = ${x.stride[0]}, .y_step = ${y.stride[0]},
});
