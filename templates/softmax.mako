${kernel}(&(struct softmax){
    .x = x, .y = y, .rows = ${product(x.extent[:-1])}, .columns = ${extent["c"]},
% if not x.dtype.is_float:
    .table = table, .levels = ${attrs["levels"]}, .zero_point = ${attrs["zero_point"]}, .low = ${attrs["low"]}, .high = ${attrs["high"]},
% endif
});
