<%namespace name="window" file="window.mako"/>\
<% groups = attrs["group"] %>\
${kernel}(&(struct pulp_conv2d){
    .x = ${x.ptr}, .w = ${w.ptr}, .y = ${y.ptr},
    .batch = ${y.extent[0]}, .height = ${x.extent[1]}, .width = ${x.extent[2]},
    .groups = ${groups}, .channels = ${extent["c"]},
    .out_height = ${y.extent[1]}, .out_width = ${y.extent[2]},
    .kernel_h = ${extent["fh"]}, .kernel_w = ${extent["fw"]},
    ${window.steps(attrs)}
    .top = ${x.before[1]}, .left = ${x.before[2]}, .zero_point = ${int(attrs["zero_point"])},
    ${window.images(x, y)}
% if "patch" in scratch:
    .patch = ${scratch["patch"]}, .room = ${scratch["patch"].bytes - 4},
% endif
% if "windows" in scratch and scratch["windows"].bytes:
    .windows = ${scratch["windows"]}, .slots = ${slots}, .pitch = ${pitch},
% endif
% if "filled" in scratch and scratch["filled"].bytes:
    .filled = ${scratch["filled"]},
% endif
    .product = {
        .depth = ${row}, .filters = (${y.extent[3]}) / ${groups}, .w_row = ${w_row},
        .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
    },
});
