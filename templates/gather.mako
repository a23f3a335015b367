<%
axis = attrs["axis"]

def product(values):
    result = 1
    for value in values:
        result *= value
    return result
%>\
${kernel}(&(struct gather){
    .x = x, .indices = indices, .y = y,
    .outer = ${product(x.extent[:axis])}, .size = ${x.extent[axis]}, .inner = ${product(x.extent[axis + 1:])}, .count = ${product(indices.extent)},
});
