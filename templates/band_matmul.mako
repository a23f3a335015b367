${kernel}(&(struct band_matmul){
    .x = ${x.ptr}, .w = ${w.ptr}, .spans = ${spans.ptr}, .y = ${y.ptr}, .rows = ${y.extent[0]}, .columns = ${y.extent[1]},
    .x_step = ${x.stride[0]}, .y_step = ${y.stride[0]},
});
