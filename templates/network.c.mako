<% P = prefix.upper() %>\
<%namespace name="states" file="growth.c.mako"/>\
/* Network ${prefix}, compiled from ${model} by deeploy ${version}: ${len(layers)} layers, ${macs} multiply-accumulates. */
#include "${prefix}.h"

#include <math.h>
#include <stdint.h>

% if not is_flat:
#include "${prefix}_checks.h"
% endif
% if not is_far:
#include "${prefix}_weights.h"
% endif
% if not is_flat:
#include "deeploy_box.h"
% endif
#include "${project}_kernels.h"
% if has_messages:
#include "deeploy_link.h"
% endif
% if not is_flat:
#include "deeploy_tile.h"
% endif

% if offsets:
/* Where everything lies in the arena of its memory, in bytes. */
enum {
% for offset, name in offsets:
    ${name} = ${offset},
% endfor
};

% endif
% if not is_flat:
/* Tickets of a call's own transfers. */
enum { IN = 0, OUT = 1, EARLY = 2 };

% endif
static const void *const *inputs;
static void *const *outputs;
% for level in levels:
static ${"uintptr_t" if is_flat else "rt_address"} ${level.lower()};
% endfor
% if growth and sharing and is_flat:
#ifdef DEEPLOY_STATIC_ARENA
${f"_Alignas({P}_ARENA_ALIGNMENT)" if lead == prefix else "extern"} unsigned char ${lead}_arena[${P}_ARENA_BYTES];
#endif
% endif
% if growth:
${states.variables()}\
% endif
% if is_far and (constants or borrowed):
static rt_address constants;
% endif

% if has_tiles:
/* Runs the body on a team of cores; the closure tells it which tile it is. */
static inline void team(int cores, void (*body)(void *), rt_address closure, int32_t t) {
    *(int32_t *)closure = t;
    if (cores > 1) rt_fork(cores, body, (void *)closure);
    else body((void *)closure);
}

% endif
% for name in early:
static void early_${name}(void);
% endfor
% for _, text in layers:
${text}
% endfor
#ifdef DEEPLOY_PROFILE
#define LAYER(index, name) (deeploy_profile(#name, index, 0), layer_##name(), deeploy_profile(#name, index, 1))
#else
#define LAYER(index, name) layer_##name()
#endif

<%def name="run_layers()">\
% for index, (name, _) in enumerate(layers):
    LAYER(${index}, ${name});
% endfor
</%def>\
% if not is_flat:
static void announce(void) {
% if growth and growth.position:
    RT_REGION(LEVEL_${outer}, &position, sizeof position, 0);
% endif
% for index in range(len(inputs)):
    RT_REGION(LEVEL_${outer}, inputs[${index}], ${inputs[index]["bytes"]}, 0);
% endfor
% for index in range(len(outputs)):
    RT_REGION(LEVEL_${outer}, outputs[${index}], ${outputs[index]["bytes"]}, 1);
% endfor
% if not is_far:
% for k in [*constants, *borrowed]:
    RT_REGION(LEVEL_${outer}, ${k.name}, sizeof(${k.type}) * ${k.elements}, 0);
% endfor
% endif
}

static int infer(void *argument) {
    (void)argument;
    RT_STEP(blocks, BLOCKS, -1);
    announce();
${run_layers()}\
    RT_STEP(blocks, BLOCKS, ${steps});
    return 0;
}

% endif
enum deeploy_status ${prefix}_run(const void *const *sources, void *const *results) {
    if (!${levels[0].lower()}) return DEEPLOY_ERROR_NOT_INITIALISED;
% if inputs:
    for (int i = 0; i < ${P}_INPUTS; i++) {
        if (!sources[i] && ${prefix}_inputs[i].bytes) return DEEPLOY_ERROR_NULL;
    }
% endif
    for (int i = 0; i < ${P}_OUTPUTS; i++) {
        if (!results[i] && ${prefix}_outputs[i].bytes) return DEEPLOY_ERROR_NULL;
    }
% if not is_far:
#ifdef DEEPLOY_BINARY_WEIGHTS
    if (${" || ".join(f"!{owner}_weights" for owner in owners)}) return DEEPLOY_ERROR_NULL;
#endif
% endif
% if growth:
${states.begin()}\
% endif
    inputs = sources;
    outputs = results;
% if is_flat:
${run_layers()}\
% else:
    if (rt_enter(infer, 0)) return DEEPLOY_ERROR_NULL;
% endif
% if growth:
    past_rows = live_rows;
% endif
    return DEEPLOY_OK;
}

% if not is_flat:
static int prepare(void *argument) {
    (void)argument;
% for level in levels:
    ${level.lower()} = rt_${"constants" if level in resident else "arena"}(LEVEL_${level});
% endfor
% if is_far and (constants or borrowed):
    constants = rt_constants(LEVEL_${default});
% endif
% for k in constants + borrowed:
% if k.name in kept_near:
    RT_REGION(LEVEL_${outer}, ${k.name}, sizeof(${k.type}) * ${k.elements}, 0);
% endif
% endfor
% for line in initialise:
    ${line}
% endfor
    return 0;
}

% endif
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
    ${levels[0].lower()} = (uintptr_t)memory;
% else:
    (void)memory;
    (void)bytes;
% if is_flat:
    static unsigned char none; /* this network needs no working memory */
    ${levels[0].lower()} = (uintptr_t)&none;
% else:
    rt_enter(prepare, 0);
% endif
% endif
% if growth:
    past_rows = 0;
% endif
    return DEEPLOY_OK;
}

% if growth:
${states.functions()}\
% endif
<%include file="network_descriptors.c.mako"/>