<%
P = prefix.upper()
instance = f"struct {lead}_instance"


def declare(port, const=""):
    """A parameter: an array of the tensor's shape, or a pointer where the tensor has no elements."""
    sizes = "".join(f"[{size}]" for size in port["shape"] or [1])
    return f"{const}{port['c']} {port['parameter']}{sizes}" if port["bytes"] else f"{const}{port['c']} *{port['parameter']}"


parameters = ", ".join([*(declare(port, "const ") for port in inputs), *map(declare, outputs)]) or "void"
given = {side: ", ".join(port["parameter"] for port in ports) or "0" for side, ports in (("inputs", inputs), ("outputs", outputs))}
%>\
/* Network ${prefix}, compiled from ${model} by deeploy ${version}. */
#ifndef ${P}_H
#define ${P}_H

% if test:
#if !defined(DEEPLOY_NO_SELF_TEST) && !defined(DEEPLOY_PROFILE)
#define DEEPLOY_PROFILE /* the self-test observes layers */
#endif
% endif
#include "deeploy_network.h"
% if lead != prefix:
#include "${lead}.h"
% endif

#define ${P}_COMPILER_VERSION "${version}"
% if digest:
#define ${P}_MODEL_SHA256 "${digest}" /* of the ONNX file */
% endif
#define ${P}_INPUTS ${len(inputs)}
#define ${P}_OUTPUTS ${len(outputs)}
% if dynamic_length:
#define ${P}_CONTEXT ${dynamic_length.context} /* the most rows that the states (a KV cache, say) can hold */
#define ${P}_ROWS ${dynamic_length.rows} /* rows that each inference appends to the states */
% endif
% if stream:
#define ${P}_STREAM_HOP ${stream["hop"]} /* columns of the streamed input that are new in each inference */
% for index, output in enumerate(stream["outputs"]):
#define ${P}_OUTPUT_${index}_DELAY ${output["delay"]} /* columns of the streamed input by which the output lags */
% if output["calls"] > 1:
#define ${P}_OUTPUT_${index}_EVERY ${output["calls"]} /* it is new when ${prefix}_position() is a multiple of this, and stays as it is until then */
% endif
% endfor
% endif
#define ${P}_LAYERS ${len(layers)}
#define ${P}_ARENA_BYTES ${arena_bytes}
#define ${P}_ARENA_ALIGNMENT ${alignment}

/* Inputs and outputs: numbers by their names, types of elements in C, shapes, and, of integers, scale and zero point. */
% for kind, ports in (("INPUT", inputs), ("OUTPUT", outputs)):
% for index, port in enumerate(ports):
#define ${P}_${kind}_${port["parameter"].upper()} ${index} /* "${port["about"]}": ${port["c"]}${list(port["shape"])} */
#define ${P}_${kind}_${index}_TYPE ${port["c"]}
#define ${P}_${kind}_${index}_SHAPE {${", ".join(map(str, port["shape"])) or "1"}}
#define ${P}_${kind}_${index}_ELEMENTS ${port["elements"]}
% if port["c"] != "float":
#define ${P}_${kind}_${index}_SCALE ${port["scale"]}
#define ${P}_${kind}_${index}_ZERO_POINT ${port["zero_point"]}
% endif
% endfor
% endfor

#ifdef __cplusplus
extern "C" {
#endif

extern const struct deeploy_tensor ${prefix}_inputs[${max(1, len(inputs))}];
extern const struct deeploy_tensor ${prefix}_outputs[${max(1, len(outputs))}];
extern const struct deeploy_network ${prefix}_network;

% if lead == prefix:
/* An instance: everything that the network keeps between calls. Only the functions below read and write its fields; you allocate it\
% if not is_flat:
:
 * in the same memory as the arrays of inputs and outputs\
% endif
. */
${instance} {
% for field in fields:
    ${field.type}${field.name};${f" /* {field.comment} */" if field.comment else ""}
% endfor
% if not steps_refused:
#ifdef DEEPLOY_STEPS
    int32_t step; /* one more than the step that is next; 0: no inference was started */
#endif
% endif
};

/* The instance used by the functions that do not take one, such as ${prefix}_run. */
extern ${instance} ${prefix}_default_instance;
% else:
/* This network shares its states with ${lead} and therefore uses the same instances: one instance holds one set of states. */
% endif

% if is_flat:
/* Gives an instance its working memory: ${P}_ARENA_BYTES bytes, aligned to ${P}_ARENA_ALIGNMENT. Instances with separate working memory
 * are independent and may run at the same time in several threads. They share only constants, which are never written.
% if dynamic_length:
 * The states lie in the working memory. They are empty after this call.
% else:
 * Instances that never run at the same time may share working memory, even if they belong to different networks.
% endif
% else:
/* Prepares the scratchpad memories for an instance; arena and bytes are ignored. All instances of all networks of the project work in
 * the same scratchpad memories, so only one inference may run at a time.
% if dynamic_length:
 * There is room for the states of one instance: the one that was initialised last, and they are empty after this call. For any other
 * instance, ${prefix}_instance_run returns DEEPLOY_ERROR_STATES.
% endif
% endif
% if dynamic_length and sharing:
 * The states are shared with ${" and ".join(sharing)}: initialise an instance for ${"both networks" if len(sharing) == 1 else "all of these networks"} with the same arena before its first inference.
% endif
 */
enum deeploy_status ${prefix}_instance_init(${instance} *instance, void *arena, size_t bytes);

/* Runs one inference. The caller allocates the arrays: aligned to their element type, densely packed, in row-major order.\
% if dynamic_length:

 * It appends ${P}_ROWS rows to the states at ${prefix}_instance_position and advances that position. Axes along which the states grow
 * have room for ${P}_CONTEXT entries in every array; only the entries of rows that exist by then are read or written.
 * ${"If the states already hold rows" if dynamic_length.begins else "If there is no room for more rows"}, it returns DEEPLOY_ERROR_CONTEXT and changes nothing.\
% endif
 */
enum deeploy_status ${prefix}_instance_run(${instance} *instance, const void *const *inputs, void *const *outputs);

% if dynamic_length:
/* The number of rows that the states hold; 0 after ${prefix}_instance_init. */
uint32_t ${prefix}_instance_position(const ${instance} *instance);

/* Discards all rows from `position` on; 0 begins a new sequence. A position beyond the last row is DEEPLOY_ERROR_CONTEXT. */
enum deeploy_status ${prefix}_instance_seek(${instance} *instance, uint32_t position);

% endif
% if generator:
/* Working memory of ${prefix}_instance_generate, needed only while that function runs. */
struct ${prefix}_writer {
% for array in generator.arrays:
    ${array.type} ${array.name}[${array.elements}];${f" /* {array.comment} */" if array.comment else ""}
% endfor
};

/* Generates tokens that continue a prompt. The prompt continues the rows that the states hold; call ${prefix}_instance_seek(instance, 0)
 * first to begin a new text. Generation ends with DEEPLOY_OK after `most` tokens, after the token `end`, when on_token returns
 * non-zero, or when the states are full. The last token is not yet in the states: begin the next prompt with it to continue.
% if generator.prompt:
 * Prompts of ${generator.worth} or more tokens are processed by network ${generator.prompt.prefix}, ${f"their first {generator.prompt.rows} at once if the states are empty" if generator.prompt.begins else f"{generator.prompt.rows} at a time"}; initialise it as well.
% endif
 * Returns DEEPLOY_ERROR_CONTEXT if the prompt does not fit into the states, and DEEPLOY_ERROR_TOKEN if it is empty or has a token
 * outside 0 to ${generator.step.tokens - 1}; nothing is changed in both cases. */
enum deeploy_status ${prefix}_instance_generate(${instance} *instance, struct ${prefix}_writer *writer,
                                                struct deeploy_generation *generation);

% endif
/* The same functions on ${lead}_default_instance. With -DDEEPLOY_STATIC_ARENA, the arena NULL selects a statically allocated one. */
enum deeploy_status ${prefix}_init(void *arena, size_t bytes);
enum deeploy_status ${prefix}_run(const void *const *inputs, void *const *outputs);

/* The same with types, for compilers to check. */
static inline enum deeploy_status ${prefix}_run_typed(${parameters}) {
    const void *const inputs[] = {${given["inputs"]}};
    void *const outputs[] = {${given["outputs"]}};
    return ${prefix}_run(inputs, outputs);
}

<%include file="learning.h.mako"/>\
% if test:
/* Runs the samples of the self-test, after ${prefix}_init. `put` prints a character, as putchar does; `clock` counts cycles and may be NULL.
 * It prints a line for every layer, names the first that differs, and returns how many do; -1 where an inference failed. */
int ${prefix}_test(int (*put)(int), uint32_t (*clock)(void));

% endif
#ifdef DEEPLOY_STEPS
% if steps_refused:
#error "DEEPLOY_STEPS: ${prefix} cannot stop between layers, since ${steps_refused}. Call ${prefix}_run without it."
% else:
/* An inference in steps, of which each is one layer, or the layers of a fused group. ${prefix}_instance_start begins it, and
 * ${prefix}_instance_step runs so many further steps: DEEPLOY_UNFINISHED says that there are more, DEEPLOY_OK that the outputs are
 * there. In between, the arrays that were passed, the array of their addresses, and the working memory belong to the inference;
 * ${prefix}_instance_init and ${prefix}_instance_run give it up. */
#define ${P}_STEPS ${sum(len(calls) for _, groups in sections for _, calls in groups)}
enum deeploy_status ${prefix}_instance_start(${instance} *instance, const void *const *inputs, void *const *outputs);
enum deeploy_status ${prefix}_instance_step(${instance} *instance, int steps);
enum deeploy_status ${prefix}_start(const void *const *inputs, void *const *outputs);
enum deeploy_status ${prefix}_step(int steps);
% endif
#endif
% if dynamic_length:
uint32_t ${prefix}_position(void);
enum deeploy_status ${prefix}_seek(uint32_t position);
% endif
% if generator:
enum deeploy_status ${prefix}_generate(struct deeploy_generation *generation);
% endif

#ifdef __cplusplus
}
#endif

#endif
