<%namespace name="window" file="window.mako"/>\
<% groups = attrs["group"] %>\
${kernel}(&(struct arm_conv2d){
    .x = ${x.ptr}, .w = ${w.ptr}, .y = ${y.ptr},
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]},
    .groups = ${groups}, .channels = ${extent["c"]}, .filters = (${y.extent[3]}) / ${groups},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]},
    .kernel_h = ${extent["fh"]}, .kernel_w = ${extent["fw"]},
    ${window.steps(attrs)}
    .top = ${x.before[1]}, .left = ${x.before[2]}, .zero_point = ${int(attrs["zero_point"])},
    ${window.images(x, y)}
    .windows = ${scratch["windows"]},
    .epilogue = ${epilogue},
});
