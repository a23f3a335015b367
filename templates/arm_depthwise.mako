<%namespace name="window" file="window.mako"/>\
${kernel}(&(struct arm_depthwise){
    .x = ${x.ptr}, .w = ${w.ptr}, .y = ${y.ptr},
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]},
    .channels = ${y.extent[3]},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]},
    .kernel_h = ${extent["fh"]}, .kernel_w = ${extent["fw"]},
    ${window.steps(attrs)}
    .top = ${x.before[1]}, .left = ${x.before[2]}, .zero_point = ${int(attrs["zero_point"])},
    ${window.images(x, y)}
    .words = ${scratch["words"]},
    .epilogue = ${epilogue},
});
