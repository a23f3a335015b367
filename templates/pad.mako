<%
rank = len(y.extent)

def six(values, filler):
    return "{" + ", ".join(map(str, [filler] * (6 - rank) + list(values))) + "}"
%>\
${kernel}(&(struct pad){
    .x = ${x.ptr}, .y = ${y.ptr}, .mode = PAD_${attrs["mode"].upper()},
    .extent = ${six(y.extent, 1)}, .x_extent = ${six(x.extent, 1)}, .before = ${six(x.before, 0)},
    .x_step = ${six(x.stride, 0)}, .y_step = ${six(y.stride, 0)},
% if x.dtype.is_float:
    .value_f = ${c_float(float(attrs["value"]))},
% else:
    .value = ${c_int(int(attrs["value"]))},
% endif
});
