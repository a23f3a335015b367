<% P = prefix.upper() %>\
<%def name="descriptors(kind, tensors)">\
% for index, tensor in enumerate(tensors):
static const int32_t ${kind}_${index}_shape[] = {${", ".join(map(str, tensor["shape"])) or "1"}};
% endfor
const struct deeploy_tensor ${prefix}_${kind}s[${max(1, len(tensors))}] = {
% for index, tensor in enumerate(tensors):
    {${tensor["name"]}, ${tensor["type"]}, ${len(tensor["shape"])}, ${kind}_${index}_shape, ${tensor["bytes"]}, ${tensor["scale"]}, ${tensor["zero_point"]}},
% endfor
% if not tensors:
    {0},
% endif
};
</%def>\
${descriptors("input", inputs)}
${descriptors("output", outputs)}
const struct deeploy_network ${prefix}_network = {
    "${prefix}", ${P}_ARENA_BYTES, ${P}_INPUTS, ${P}_OUTPUTS, ${prefix}_inputs, ${prefix}_outputs, ${prefix}_init, ${prefix}_run,
    ${f"{P}_CONTEXT, {prefix}_position, {prefix}_seek" if dynamic_length else "0, 0, 0"}, ${f"{prefix}_generate" if generator else "0"},
};
