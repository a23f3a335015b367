<%
found = {name: context.get(name, None) for name in ("c", "b", "cells")}
ptr = {name: view.ptr if view else 0 for name, view in found.items()}
batch = {name: found[name].stride[0] if found[name] else 0 for name in ("c", "cells")}
%>\
${kernel}(&(struct integer_recurrent){
    .p = ${p.ptr}, .r = ${r.ptr}, .h = ${h.ptr}, .c = ${ptr["c"]}, .factors = ${factors.ptr},
    .tables = ${tables.ptr}, .b = ${ptr["b"]}, .y = ${y.ptr}, .cells = ${ptr["cells"]},
    .sums = ${scratch["sums"]}, .state = ${scratch.get("state", 0)},
    .steps = ${y.extent[0]}, .batch = ${y.extent[1]}, .units = ${y.extent[2]}, .reverse = ${int(attrs["reverse"])},
    .shift_p = ${attrs["shift_p"]}, .shift = ${attrs["shift"]}, .cores = ${cores}, .functions = ${tables.extent[0]},
    .p_step = ${p.stride[0]}, .p_batch = ${p.stride[1]}, .p_gate = ${p.stride[2]},
    .h_batch = ${h.stride[0]}, .c_batch = ${batch["c"]}, .y_step = ${y.stride[0]}, .y_batch = ${y.stride[1]},
    .cells_batch = ${batch["cells"]},
});
