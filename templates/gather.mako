<% axis = attrs["axis"] %>\
${kernel}(&(struct gather){
    .x = x, .indices = indices, .y = y,
    .outer = ${product(x.extent[:axis])}, .size = ${x.extent[axis]}, .inner = ${product(x.extent[axis + 1:])}, .count = ${product(indices.extent)},
});
