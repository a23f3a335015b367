${kernel}(&(struct own_matmul){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    .rows = ${y.extent[0]}, .columns = ${y.extent[1]}, .depth = ${a.extent[1]},
    .a_row = ${a.stride[0]}, .b_row = ${b.stride[0]}, .y_row = ${y.stride[0]},
    .epilogue = ${epilogue},
});
