<%
found = {name: context.get(name, None) for name in ("q", "r", "h", "c", "b", "w", "cells")}
ptr = {name: view.ptr if view else 0 for name, view in found.items()}
batch = {name: view.stride[0] if view else 0 for name, view in found.items()}
gate = {name: found[name].stride[-2] if found[name] else 0 for name in ("q", "w")}
is_layer = len(y.stride) > 2
%>\
${kernel}(&(struct recurrent){
    .p = ${p.ptr}, ${", ".join(f".{name} = {pointer}" for name, pointer in ptr.items() if name != "cells")},
    .y = ${y.ptr}, .cells = ${ptr["cells"]}, .state = ${scratch.get("state", 0)},
    .steps = ${y.extent[0] if is_layer else 1}, .batch = ${y.extent[-2]}, .units = ${y.extent[-1]},
    .reverse = ${int(attrs["reverse"])}, .cores = ${cores},
    .p_step = ${p.stride[0] if is_layer else 0}, .p_batch = ${p.stride[-3]}, .p_gate = ${p.stride[-2]},
    .q_batch = ${batch["q"]}, .q_gate = ${gate["q"]}, .h_batch = ${batch["h"]}, .c_batch = ${batch["c"]},
    .y_step = ${y.stride[0] if is_layer else 0}, .y_batch = ${y.stride[-2]}, .cells_batch = ${batch["cells"]}, .w_gate = ${gate["w"]},
    .input_forget = ${int(attrs["input_forget"])}, .clip = ${c_float(attrs["clip"])},
    .alpha = {${", ".join(map(c_float, attrs["alphas"]))}}, .beta = {${", ".join(map(c_float, attrs["betas"]))}},
});
