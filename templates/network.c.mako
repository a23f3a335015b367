<%
P = prefix.upper()
base = levels[0].lower()  # set by init: what has none was not initialised
instance = f"struct {lead}_instance"
%>\
/* Network ${prefix}, compiled from ${model} by deeploy ${version}: ${len(layers)} layers, ${macs} multiply-accumulates.
 *
 * Every layer has a function and, above it, a comment: the ONNX node; the kernel and what runs it; each operand with its type, shape and
 * memory; and what is done to acc, the sum or value that the kernel computes for an element of the result.
 * A layer is a closure: a function and the instance that it closes over (self); it fills the argument structures of its kernels.
% if not is_flat:
 * "Through windows in L1": only the part of a tensor that the current tile needs is copied to L1. "Double-buffered": the next tile is
 * fetched while one is computed.
% endif
 */
#include "${prefix}.h"

#include <math.h>
#include <stdint.h>
% if has_strings or weights:
#include <string.h>
% endif

% if not is_flat:
#include "${prefix}_checks.h"
% endif
% if not is_far:
#include "${prefix}_weights.h"
% endif
% if not is_flat:
#include "deeploy_box.h"
% endif
% if weights:
#include "deeploy_check.h"
% endif
#include "${project}_kernels.h"
% if has_messages:
#include "deeploy_link.h"
% endif
% if not is_flat or has_fused_groups:
#include "deeploy_tile.h"
% endif

% if offsets:
/* Offset in bytes of each buffer within the arena of its memory. */
enum {
% for offset, name in offsets:
    ${name} = ${offset},
% endfor
};

% endif
% if tickets:
/* Tickets, which identify transfers to wait for: IN and OUT move a layer's tiles, ONCE loads constants before the first inference,
 * others load whole constants ahead of the layer that needs them. */
enum {
% for name, ticket in tickets.items():
    ${name} = ${ticket},
% endfor
};

% endif
typedef const ${instance} instance; /* layers only read it */

% if lead == prefix:
${instance} ${prefix}_default_instance;
% if has_owner:
/* The instance whose states are in the scratchpad memories now. */
${"" if sharing else "static "}const ${instance} *${prefix}_owner;
% endif
% elif has_owner:
extern const ${instance} *${lead}_owner;
% endif
% if dynamic_length and sharing and is_flat:
#ifdef DEEPLOY_STATIC_ARENA
${f"DEEPLOY_ARENA _Alignas({P}_ARENA_ALIGNMENT)" if lead == prefix else "extern"} unsigned char ${lead}_arena[${P}_ARENA_BYTES];
#endif
% endif

% if has_tiles:
/* Argument of a function that several cores run: the instance, and the number of the tile. */
struct tile {
    instance *self;
    int32_t t;
};

% endif
% for name in early:
static void early_${name}(instance *self);
% endfor
% if early:

% endif
% if has_fused_groups:
#ifdef DEEPLOY_PROFILE
#define TILE(index, name, t) (deeploy_profile(#name, index, 0), tile_##name(self, t), deeploy_profile(#name, index, 1))
#else
#define TILE(index, name, t) tile_##name(self, t)
#endif

% endif
% for text in layers:
${text}
% endfor
<% has_teams = any(section.cores > 1 for section, _ in sections) %>\
#ifdef DEEPLOY_PROFILE
#define LAYER(index, name) (deeploy_profile(#name, index, 0), layer_##name(self), deeploy_profile(#name, index, 1))
% if has_teams:
#define MARK(index, name, is_end) (rt_core() ? (void)0 : deeploy_profile(#name, index, is_end))
#define TEAM_LAYER(index, name) (MARK(index, name, 0), layer_##name(self), MARK(index, name, 1))
% endif
#else
#define LAYER(index, name) layer_##name(self)
% if has_teams:
#define TEAM_LAYER(index, name) layer_##name(self)
% endif
#endif

% for section, groups in sections:
% if section.cores > 1:
/* Layers ${section.first} to ${section.last}: ${section.cores} cores run this function together. */
static void team_${section.first}(void *argument) {
    instance *const self = argument;
% for is_alone, calls in groups:
% if is_alone:
    if (rt_core() == 0) {
% endif
% for index, name, _ in calls:
${"        " if is_alone else "    TEAM_"}LAYER(${index}, ${name});
% endfor
% if is_alone:
    }
% endif
% endfor
}

% endif
% endfor
<%def name="run_layers()">\
% for section, groups in sections:
% if section.cores > 1:
    rt_fork(${section.cores}, team_${section.first}, (void *)self);
% else:
% for _, calls in groups:
% for index, name, runs in calls:
% if runs == "group":
    layer_${name}(self);
% else:
    LAYER(${index}, ${name});
% endif
% endfor
% endfor
% endif
% endfor
</%def>\
<%def name="begin_inference()">\
    if (!self || !self->${base}) return DEEPLOY_ERROR_NOT_INITIALISED;
% if has_owner:
    if (${lead}_owner != self) return DEEPLOY_ERROR_STATES;
% endif
% if inputs:
    for (int i = 0; i < ${P}_INPUTS; i++) {
        if (!inputs[i] && ${prefix}_inputs[i].bytes) return DEEPLOY_ERROR_NULL;
    }
% endif
    for (int i = 0; i < ${P}_OUTPUTS; i++) {
        if (!outputs[i] && ${prefix}_outputs[i].bytes) return DEEPLOY_ERROR_NULL;
    }
% if not is_far:
#ifdef DEEPLOY_BINARY_WEIGHTS
    if (${" || ".join(f"!{owner}_weights" for owner in owners)}) return DEEPLOY_ERROR_NULL;
#endif
% endif
% if dynamic_length and dynamic_length.resumed is not None:
    if (self->past_rows == ${P}_CONTEXT) self->past_rows = ${dynamic_length.resumed}; /* inferences are counted for ever */
% endif
% if dynamic_length:
    if (self->past_rows > ${"0" if dynamic_length.begins else f"{P}_CONTEXT - {P}_ROWS"}) return DEEPLOY_ERROR_CONTEXT;
    self->all_rows = self->past_rows + ${P}_ROWS;
% if dynamic_length.position:
    self->first_row = self->past_rows;
    self->position = &self->first_row;
% endif
% endif
    self->inputs = inputs;
    self->outputs = outputs;
</%def>\
% if not is_flat:
static void announce(instance *self) {
    (void)self;
% if dynamic_length and dynamic_length.position:
    RT_REGION(LEVEL_${outer}, self->position, sizeof *self->position, 0);
% endif
% for index in range(len(inputs)):
    RT_REGION(LEVEL_${outer}, self->inputs[${index}], ${inputs[index]["bytes"]}, 0);
% endfor
% for index in range(len(outputs)):
<% calls = stream["outputs"][index]["calls"] if stream else 1 %>\
    RT_REGION(LEVEL_${outer}, self->outputs[${index}], ${outputs[index]["bytes"]}, ${f"self->all_rows % {calls} == 0" if calls > 1 else 1});
% endfor
% if not is_far:
% for k in [*constants, *borrowed]:
    RT_REGION(LEVEL_${outer}, ${k.name}, ${k.bytes}, 0);
% endfor
% endif
}

static int infer(void *argument) {
    instance near = *(instance *)argument, *const self = &near; /* a copy in the memory of the stacks, which is near to the cores */
    RT_STEP(blocks, BLOCKS, -1);
    announce(self);
${run_layers()}\
    RT_STEP(blocks, BLOCKS, ${steps});
    return 0;
}

% endif
enum deeploy_status ${prefix}_instance_run(${instance} *self, const void *const *inputs, void *const *outputs) {
${begin_inference()}\
% if not steps_refused:
#ifdef DEEPLOY_STEPS
    self->step = 0;
#endif
% endif
% if is_flat:
${run_layers()}\
% else:
    if (rt_enter(infer, self)) return DEEPLOY_ERROR_NULL;
% endif
% if dynamic_length:
    self->past_rows = self->all_rows;
% endif
    return DEEPLOY_OK;
}

% if not steps_refused:
#ifdef DEEPLOY_STEPS
enum deeploy_status ${prefix}_instance_start(${instance} *self, const void *const *inputs, void *const *outputs) {
${begin_inference()}\
    self->step = 1;
    return DEEPLOY_OK;
}

enum deeploy_status ${prefix}_instance_step(${instance} *self, int steps) {
    if (!self) return DEEPLOY_ERROR_NULL;
    if (!self->step) return DEEPLOY_ERROR_NOT_STARTED;
    for (; steps > 0 && self->step <= ${P}_STEPS; steps--) {
        switch (self->step++) {
% for number, (index, name, runs) in enumerate((call for _, groups in sections for _, calls in groups for call in calls), 1):
            case ${number}:
                ${f"layer_{name}(self)" if runs == "group" else f"LAYER({index}, {name})"};
                break;
% endfor
            default:
                break;
        }
    }
    if (self->step <= ${P}_STEPS) return DEEPLOY_UNFINISHED;
    self->step = 0;
% if dynamic_length:
    self->past_rows = self->all_rows;
% endif
    return DEEPLOY_OK;
}

enum deeploy_status ${prefix}_start(const void *const *inputs, void *const *outputs) {
    return ${prefix}_instance_start(&${lead}_default_instance, inputs, outputs);
}

enum deeploy_status ${prefix}_step(int steps) {
    return ${prefix}_instance_step(&${lead}_default_instance, steps);
}
#endif

% endif
% if not is_flat:
static int prepare(void *argument) {
    ${instance} *const self = argument;
% for level in levels:
    self->${level.lower()} = rt_${"constants" if level in resident else "arena"}(LEVEL_${level});
% endfor
% if is_far and any(k.buffer.bytes for k in constants + borrowed):
    self->constants = rt_constants(LEVEL_${default});
% endif
    RT_STEP(blocks, BLOCKS, -1);
% for k in constants + borrowed:
% if k.name in near_constants:
    RT_REGION(LEVEL_${outer}, ${k.name}, ${k.bytes}, 0);
% endif
% endfor
% for line in initialise:
    ${line}
% endfor
    return 0;
}

% endif
enum deeploy_status ${prefix}_instance_init(${instance} *self, void *arena, size_t bytes) {
    if (!self) return DEEPLOY_ERROR_NULL;
% if not is_far:
#ifdef DEEPLOY_BINARY_WEIGHTS
    if (${" || ".join(f"!{owner}_weights" for owner in owners)}) return DEEPLOY_ERROR_NULL;
% if is_flat:
    if (!(${" && ".join(f"deeploy_weights_fit({owner}_weights, {owner.upper()}_WEIGHTS_BYTES, {owner.upper()}_WEIGHTS_CODE)" for owner in owners)})) return DEEPLOY_ERROR_WEIGHTS;
% endif
#endif
% endif
% if arena_bytes:
    if (!arena || bytes < ${P}_ARENA_BYTES || (uintptr_t)arena % ${P}_ARENA_ALIGNMENT) return DEEPLOY_ERROR_ARENA;
    self->${base} = (uintptr_t)arena;
% if is_flat:
% for line in initialise:
    ${line}
% endfor
% endif
% else:
    (void)arena;
    (void)bytes;
% if is_flat:
    self->${base} = (uintptr_t)self; /* this network needs no working memory: any value but 0 means initialised */
% else:
    rt_enter(prepare, self);
% endif
% endif
% if dynamic_length:
    self->past_rows = 0;
% endif
% if not steps_refused:
#ifdef DEEPLOY_STEPS
    self->step = 0;
#endif
% endif
% if has_owner:
    ${lead}_owner = self;
% endif
    return DEEPLOY_OK;
}

% if dynamic_length:
uint32_t ${prefix}_instance_position(const ${instance} *self) {
    return (uint32_t)self->past_rows;
}

enum deeploy_status ${prefix}_instance_seek(${instance} *self, uint32_t position) {
    if (position > (uint32_t)self->past_rows) return DEEPLOY_ERROR_CONTEXT;
    self->past_rows = (int32_t)position;
    return DEEPLOY_OK;
}

% endif
<%include file="learning.c.mako"/>\
/* The same functions on the default instance. */
enum deeploy_status ${prefix}_init(void *arena, size_t bytes) {
% if arena_bytes:
#ifdef DEEPLOY_STATIC_ARENA
% if not (dynamic_length and sharing):
    DEEPLOY_ARENA static _Alignas(${P}_ARENA_ALIGNMENT) unsigned char ${lead}_arena[${P}_ARENA_BYTES];
% endif
    if (!arena) {
        arena = ${lead}_arena;
        bytes = ${P}_ARENA_BYTES;
    }
#endif
% endif
    return ${prefix}_instance_init(&${lead}_default_instance, arena, bytes);
}

enum deeploy_status ${prefix}_run(const void *const *inputs, void *const *outputs) {
    return ${prefix}_instance_run(&${lead}_default_instance, inputs, outputs);
}

% if dynamic_length:
uint32_t ${prefix}_position(void) {
    return ${prefix}_instance_position(&${lead}_default_instance);
}

enum deeploy_status ${prefix}_seek(uint32_t position) {
    return ${prefix}_instance_seek(&${lead}_default_instance, position);
}

% endif
<%include file="network_descriptors.c.mako"/>