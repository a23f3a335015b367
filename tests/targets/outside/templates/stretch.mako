${kernel}(&(struct stretch){
    .x = ${x.ptr}, .w = ${w.ptr}, .y = ${y.ptr},
    .rows = ${x.extent[0]}, .depth = ${extent["k"]}, .columns = ${extent["n"]}, .factor = ${attrs["factor"]},
});
