<% axis = attrs["axis"] %>\
${kernel}(&(struct gather){
    .x = ${x.ptr}, .indices = ${indices.ptr}, .y = ${y.ptr},
    .outer = ${product(x.extent[:axis])}, .size = ${x.extent[axis]}, .inner = ${product(x.extent[axis + 1:])}, .count = ${product(indices.extent)},
    .elements = ${(1, *y.extent)[-1]},
});
