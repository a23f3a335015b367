<%
axes = [axis for axis, length in enumerate(y.shape[:-1]) if length > 1]
missing = 3 - len(axes)
extents = [1] * missing + [y.extent[axis] for axis in axes]


def steps(view, by):
    return [0] * missing + [view.stride[axis] * by[axis] for axis in axes]
%>\
const struct pulp_requantise_sums call = {
    .sums = ${sums.ptr}, .y = ${y.ptr}, .core = rt_core(), .cores = rt_machine.cores, .channels = ${y.extent[-1]},
    .extent = {${", ".join(map(str, extents))}}, .sums_step = {${", ".join(map(str, steps(sums, sums_steps)))}},
    .y_step = {${", ".join(map(str, steps(y, [1] * len(y.shape))))}},
    .mul = ${mul.ptr}, .add = ${add.ptr}, .shift = ${attrs["shift"]}, .low = ${attrs["low"]}, .high = ${attrs["high"]},
    .table = ${epilogue.fields.get("table", 0)},
};
${kernel}(&call);
