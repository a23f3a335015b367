<% P = prefix.upper() %>\
<%namespace name="states" file="growth.c.mako"/>\
/* Network ${prefix}, compiled from ${model} by deeploy ${version}: ${len(layers)} layers, ${macs} multiply-accumulates. */
#include "${prefix}.h"

#include <math.h>
#include <stdint.h>

#include "${prefix}_checks.h"
% if not is_far:
#include "${prefix}_weights.h"
% endif
#include "deeploy_box.h"
#include "${project}_kernels.h"
% if has_messages:
#include "deeploy_link.h"
% endif
#include "deeploy_tile.h"

% if offsets:
/* Where everything lies in the arena of its memory, in bytes. */
enum {
% for offset, name in offsets:
    ${name} = ${offset},
% endfor
};

% endif
/* Tickets of a call's own transfers. */
enum { IN = 0, OUT = 1, EARLY = 2 };

static const void *const *inputs;
static void *const *outputs;
% if growth:
${states.variables()}\
% endif
% for level in levels:
static rt_address ${level.lower()};
% endfor
% if is_far and (constants or borrowed):
static rt_address constants;
% endif

/* Runs the body on a team of cores; the closure tells it which tile it is. */
static inline void team(int cores, void (*body)(void *), rt_address closure, int32_t t) {
    *(int32_t *)closure = t;
    if (cores > 1) rt_fork(cores, body, (void *)closure);
    else body((void *)closure);
}

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
% for index, (name, _) in enumerate(layers):
    LAYER(${index}, ${name});
% endfor
    RT_STEP(blocks, BLOCKS, ${steps});
    return 0;
}

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
% if growth:
${states.begin()}\
% endif
    inputs = sources;
    outputs = results;
% if growth:
    if (rt_enter(infer, 0)) return DEEPLOY_ERROR_NULL;
    past_rows = live_rows;
    return DEEPLOY_OK;
% else:
    return rt_enter(infer, 0) ? DEEPLOY_ERROR_NULL : DEEPLOY_OK;
% endif
}

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

enum deeploy_status ${prefix}_init(void *memory, size_t bytes) {
    (void)memory;
    (void)bytes;
    rt_enter(prepare, 0);
% if growth:
    past_rows = 0;
% endif
    return DEEPLOY_OK;
}

% if growth:
${states.functions()}\
% endif
<%include file="network_descriptors.c.mako"/>
