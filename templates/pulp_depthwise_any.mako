<%def name="axis(i, taps, n)">{.size = ${x.extent[i]}, .out = ${y.extent[i]}, .taps = ${extent[taps]}, .stride = ${attrs["strides"][n]},
        .dilation = ${attrs["dilations"][n]}, .before = ${x.before[i]}, .x_step = ${x.stride[i]}, .y_step = ${y.stride[i]}}</%def>\
${kernel}(&(struct pulp_depthwise_any){
    .x = ${x.ptr}, .w = ${w.ptr}, .y = ${y.ptr},
    .batch = ${y.extent[0]}, .channels = ${y.extent[3]}, .x_batch = ${x.stride[0]}, .y_batch = ${y.stride[0]},
    .zero_point = ${int(attrs["zero_point"])},
% if is_down:
    .across = ${axis(2, "fw", 1)},
    .along = ${axis(1, "fh", 0)},
% else:
    .across = ${axis(1, "fh", 0)},
    .along = ${axis(2, "fw", 1)},
% endif
    .planes = ${scratch["planes"]}, .room = ${scratch["planes"].bytes},
    .epilogue = ${complete(epilogue.fields)}, .requantisation = ${requantisation},
});
