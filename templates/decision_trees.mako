${kernel}(&(struct decision_trees){
    .x = ${x.ptr}, .nodes = ${nodes.ptr}, .thresholds = ${thresholds.ptr}, .roots = ${roots.ptr},
    .targets = ${targets.ptr}, .weights = ${weights.ptr}, .y = ${y.ptr},
    .rows = ${y.extent[0]}, .count = ${y.extent[1]}, .trees = ${roots.extent[0]},
    .x_step = ${x.stride[0]}, .y_step = ${y.stride[0]}, .aggregate = DECISION_${attrs["aggregate"]},
});
