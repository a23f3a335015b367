<%namespace name="window" file="window.mako"/>\
${kernel}(&(struct pulp_depthwise){
    .x = ${x.ptr}, .w = ${w.ptr}, .y = ${y.ptr},
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]}, .channels = ${y.extent[3]},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]},
    .top = ${x.before[1]}, .left = ${x.before[2]}, .zero_point = ${int(attrs["zero_point"])},
    ${window.images(x, y)}
    .columns = ${scratch["columns"]}, .room = ${scratch["columns"].bytes // (16 * attrs["strides"][0])},
    .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
});
