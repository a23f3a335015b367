<% P = prefix.upper() %>\
<%namespace name="states" file="growth.c.mako"/>\
/* Network ${prefix}, compiled from ${model} by deeploy ${version}: ${len(layers)} layers, ${macs} multiply-accumulates. */
#include "${prefix}.h"

#include <math.h>
#include <stdint.h>

#include "${project}_kernels.h"
% if has_messages:
#include "deeploy_link.h"
% endif
#include "${prefix}_weights.h"

% if offsets:
/* Where the activations lie in the arena, in bytes. */
enum {
% for offset, name in offsets:
    ${name} = ${offset},
% endfor
};

% endif
static unsigned char *arena;
% if growth and sharing:
#ifdef DEEPLOY_STATIC_ARENA
${f"_Alignas({P}_ARENA_ALIGNMENT)" if lead == prefix else "extern"} unsigned char ${lead}_arena[${P}_ARENA_BYTES];
#endif
% endif
% if growth:
${states.variables()}\
% endif

% for layer in layers:
% for line in layer.header:
/* ${line} */
% endfor
static void layer_${layer.name}(const void *const *inputs, void *const *outputs) {
    (void)inputs;
    (void)outputs;
% for pointer in layer.pointers:
    ${pointer}
% endfor
% for line in layer.body.splitlines():
${"    " + line if line.strip() else ""}
% endfor
}

% endfor
#ifdef DEEPLOY_PROFILE
#define LAYER(index, name) (deeploy_profile(#name, index, 0), layer_##name(inputs, outputs), deeploy_profile(#name, index, 1))
#else
#define LAYER(index, name) layer_##name(inputs, outputs)
#endif

enum deeploy_status ${prefix}_run(const void *const *inputs, void *const *outputs) {
    if (!arena) return DEEPLOY_ERROR_NOT_INITIALISED;
% if inputs:
    for (int i = 0; i < ${P}_INPUTS; i++) {
        if (!inputs[i] && ${prefix}_inputs[i].bytes) return DEEPLOY_ERROR_NULL;
    }
% endif
    for (int i = 0; i < ${P}_OUTPUTS; i++) {
        if (!outputs[i] && ${prefix}_outputs[i].bytes) return DEEPLOY_ERROR_NULL;
    }
#ifdef DEEPLOY_BINARY_WEIGHTS
    if (${" || ".join(f"!{owner}_weights" for owner in owners)}) return DEEPLOY_ERROR_NULL;
#endif
% if growth:
${states.begin()}\
% endif
% for index, layer in enumerate(layers):
    LAYER(${index}, ${layer.name});
% endfor
% if growth:
    past_rows = live_rows;
% endif
    return DEEPLOY_OK;
}

enum deeploy_status ${prefix}_init(void *memory, size_t bytes) {
% if arena_bytes:
#ifdef DEEPLOY_STATIC_ARENA
% if growth and sharing:
    unsigned char *const own = ${lead}_arena;
% else:
    static _Alignas(${P}_ARENA_ALIGNMENT) unsigned char own[${P}_ARENA_BYTES];
% endif
    if (!memory) {
        memory = own;
        bytes = ${f"{P}_ARENA_BYTES" if growth and sharing else "sizeof own"};
    }
#endif
    if (!memory || bytes < ${P}_ARENA_BYTES || (uintptr_t)memory % ${P}_ARENA_ALIGNMENT) return DEEPLOY_ERROR_ARENA;
    arena = memory;
% if growth:
    past_rows = 0;
% endif
% else:
    static unsigned char none; /* this network needs no working memory */
    (void)memory;
    (void)bytes;
    arena = &none;
% endif
    return DEEPLOY_OK;
}

% if growth:
${states.functions()}\
% endif
<%include file="network_descriptors.c.mako"/>