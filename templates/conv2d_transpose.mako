<%namespace name="window" file="window.mako"/>\
<%
groups = attrs["group"]


def origin(axis):
    """From the first row or column of the full result to the first that the call computes, where the window of x begins at 0."""
    return y.first[1 + axis] + attrs["pads"][axis] - attrs["strides"][axis] * x.first[1 + axis]
%>\
${kernel}(&(struct conv2d_transpose){
    .x = ${x.ptr}, .w = ${w.ptr}, .y = ${y.ptr},
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]},
    .groups = ${groups}, .channels = ${extent["c"]}, .filters = (${y.extent[3]}) / ${groups},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]},
    .kernel_h = ${w.extent[0]}, .kernel_w = ${w.extent[1]},
    ${window.steps(attrs)}
    .top = ${origin(0)}, .left = ${origin(1)}, .zero_point = ${int(attrs["zero_point"])},
    ${window.images(x, y)}
    .epilogue = ${epilogue},
});
