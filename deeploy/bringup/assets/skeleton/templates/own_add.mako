${kernel}(&(struct own_add){
    .a = ${a.ptr}, .b = ${b.ptr}, .y = ${y.ptr},
    .rows = ${product(y.extent[:-1])}, .columns = ${y.extent[-1]},
    .epilogue = ${epilogue},
});
