<%! import re %>\
<%def name="function(name, lines, parameters)">\
<% parameter = parameters.split()[-1].strip("*") %>\
static void ${name}(${parameters}) {
% if parameter != "void" and not any(re.search(rf"\b{parameter}\b", line) for line in lines):
    (void)${parameter};
% endif
% for line in lines:
${"    " + line if line.strip() else ""}
% endfor
}
</%def>\
\
<%def name="call(layer)">\
<%
    one = layer.tiles == 1
    tile = "void" if one else "int32_t t"
    far = bool(layer.stages or layer.unstages)

    def at(text):
        return "" if one else text
%>\
% for line in layer.header:
/* ${line} */
% endfor
% if layer.early:
${function(layer.name + "_early", layer.early, "void")}
% endif
% for suffix, lines in (("fetch", layer.fetches), ("store", layer.stores), ("stage", layer.stages), ("unstage", layer.unstages)):
% if lines:
${function(f"{layer.name}_{suffix}", lines, tile)}
% endif
% endfor
${function(layer.name + "_body", layer.body, "void *argument")}
TILED_LAYER ${layer.name}(void) {
    RT_STEP(blocks, BLOCKS, ${layer.index});
% for line in layer.loads:
    ${line}
% endfor
% if layer.awaited is not None:
    rt_wait(DMA_${layer.far}, ${layer.awaited});
% endif
% if layer.early:
    rt_wait(DMA_${layer.near}, EARLY);
% endif
% if one:
${once(layer)}\
% elif layer.is_double:
${doubled(layer)}\
% else:
${simple(layer)}\
% endif
}
</%def>\
\
<%def name="begun(layer, t, indent)">\
% if layer.accelerator:
${indent}team(1, ${layer.name}_body, ${layer.closure}, ${t});
% endif
</%def>\
\
<%def name="finished(layer, t, indent)">\
% if layer.accelerator:
${indent}rt_job_wait(ACCELERATOR_${layer.accelerator});
% else:
${indent}team(${layer.cores}, ${layer.name}_body, ${layer.closure}, ${t});
% endif
</%def>\
\
<%def name="computed(layer, t, indent, condition='')">\
${begun(layer, t, indent)}\
% if layer.following:
${indent}${condition}${layer.following}_early();
% endif
${finished(layer, t, indent)}\
</%def>\
\
<%def name="once(layer)">\
% if layer.stages:
    ${layer.name}_stage();
    rt_wait(DMA_${layer.far}, IN);
% endif
% if layer.fetches:
    ${layer.name}_fetch();
    rt_wait(DMA_${layer.near}, IN);
% endif
${computed(layer, "0", "    ")}\
% if layer.stores:
    ${layer.name}_store();
    rt_wait(DMA_${layer.near}, OUT);
% endif
% if layer.unstages:
    ${layer.name}_unstage();
    rt_wait(DMA_${layer.far}, OUT);
% endif
</%def>\
\
<%def name="simple(layer)">\
    for (int32_t t = 0; t < ${layer.tiles}; t++) {
% if layer.stages:
        if (t % ${layer.group} == 0) {
            ${layer.name}_stage(t);
            rt_wait(DMA_${layer.far}, IN);
        }
% endif
% if layer.fetches:
        ${layer.name}_fetch(t);
        rt_wait(DMA_${layer.near}, IN);
% endif
${computed(layer, "t", "        ", f"if (t == {layer.tiles - 1}) ")}\
% if layer.stores:
        ${layer.name}_store(t);
        rt_wait(DMA_${layer.near}, OUT);
% endif
% if layer.unstages:
        if (t % ${layer.group} == ${layer.group - 1}) {
            ${layer.name}_unstage(t);
            rt_wait(DMA_${layer.far}, OUT);
        }
% endif
    }
</%def>\
\
<%def name="doubled(layer)">\
<% last = layer.tiles - 1 %>\
% if layer.stages:
    ${layer.name}_stage(0);
    rt_wait(DMA_${layer.far}, IN);
% endif
% if layer.fetches:
    ${layer.name}_fetch(0);
% endif
% if layer.stages and layer.group < layer.tiles:
    ${layer.name}_stage(${layer.group});
% endif
    for (int32_t t = 0; t < ${layer.tiles}; t++) {
% if layer.fetches:
        rt_wait(DMA_${layer.near}, IN);
% endif
${begun(layer, "t", "        ")}\
% if layer.fetches:
        if (t < ${last}) {
% if layer.stages:
            if ((t + 1) % ${layer.group} == 0) rt_wait(DMA_${layer.far}, IN);
% endif
            ${layer.name}_fetch(t + 1);
% if layer.stages:
            if ((t + 1) % ${layer.group} == 0 && t + 1 + ${layer.group} < ${layer.tiles}) ${layer.name}_stage(t + 1 + ${layer.group});
% endif
        }
% endif
% if layer.following:
        if (t == ${last}) ${layer.following}_early();
% endif
${finished(layer, "t", "        ")}\
% if layer.stores:
        rt_wait(DMA_${layer.near}, OUT);
        ${layer.name}_store(t);
% endif
% if layer.unstages:
        if (t % ${layer.group} == ${layer.group - 1}) {
            rt_wait(DMA_${layer.near}, OUT);
            rt_wait(DMA_${layer.far}, OUT);
            ${layer.name}_unstage(t);
% if not layer.unstaged_twice:
            rt_wait(DMA_${layer.far}, OUT);
% endif
        }
% endif
    }
% if layer.stores:
    rt_wait(DMA_${layer.near}, OUT);
% endif
% if layer.unstages:
    rt_wait(DMA_${layer.far}, OUT);
% endif
</%def>
