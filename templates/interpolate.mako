<%namespace name="window" file="window.mako"/>\
${kernel}(&(struct interpolate){
    .x = ${x.ptr}, .y = ${y.ptr}, .rows = ${rows.ptr}, .columns = ${columns.ptr},
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]}, .channels = ${y.extent[3]},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]},
    ${window.images(x, y)}
});
