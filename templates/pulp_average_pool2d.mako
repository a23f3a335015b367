<%namespace name="window" file="window.mako"/>\
${kernel}(&(struct pulp_average_pool2d){
    .x = ${x.ptr}, .y = ${y.ptr},
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]}, .channels = ${y.extent[3]},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]},
    .kernel_h = ${attrs["kernel"][0]}, .kernel_w = ${attrs["kernel"][1]},
    ${window.steps(attrs)}
    .top = ${x.before[1]}, .left = ${x.before[2]},
    .count_include_pad = ${int(attrs["count_include_pad"])}, .zero_point = ${int(attrs["zero_point"])},
    ${window.images(x, y)}
    .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
});
