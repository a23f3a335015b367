<%
P = prefix.upper()
instance = f"struct {lead}_instance"
%>\
/* Network ${prefix}, compiled from ${model} by deeploy ${version}. */
#ifndef ${P}_H
#define ${P}_H

#include "deeploy_network.h"
% if lead != prefix:
#include "${lead}.h"
% endif

#define ${P}_INPUTS ${len(inputs)}
#define ${P}_OUTPUTS ${len(outputs)}
% if growth:
#define ${P}_CONTEXT ${growth.context} /* rows that the states hold at most */
#define ${P}_ROWS ${growth.rows} /* that every inference appends */
% endif
#define ${P}_LAYERS ${len(layers)}
#define ${P}_ARENA_BYTES ${arena_bytes}
#define ${P}_ARENA_ALIGNMENT ${alignment}

#ifdef __cplusplus
extern "C" {
#endif

extern const struct deeploy_tensor ${prefix}_inputs[${max(1, len(inputs))}];
extern const struct deeploy_tensor ${prefix}_outputs[${max(1, len(outputs))}];
extern const struct deeploy_network ${prefix}_network;

% if lead == prefix:
/* An instance: all that the network keeps between calls of its functions, which alone read and write it. You say where it lies\
% if not is_flat:
:
 * in the memory that arrays of inputs and outputs lie in\
% endif
. */
${instance} {
% for field in fields:
    ${field.type}${field.name};${f" /* {field.comment} */" if field.comment else ""}
% endfor
};

/* The instance that the functions without one work on. */
extern ${instance} ${prefix}_default_instance;
% else:
/* Instances are those of ${lead}, since both networks have the same states: an instance is one set of states. */
% endif

% if is_flat:
/* Gives an instance its working memory, ${P}_ARENA_BYTES at a multiple of ${P}_ARENA_ALIGNMENT. Instances with memory of their own are
 * independent: they may run at the same time, in several threads. What they share are constants, which are never written.
% if growth:
 * The states lie in the working memory, and are empty then.
% else:
 * Instances that never run at the same time, also of several networks, may have the same working memory.
% endif
% else:
/* Prepares the machine's memories for an instance; arena and bytes are not read. The memories belong to the machine: all instances
 * of all networks of the project work in the same ones, and their inferences have to follow each other.
% if growth:
 * There is room for the states of one instance, which are empty then: the one that was initialised last. For any other,
 * ${prefix}_instance_run returns DEEPLOY_ERROR_STATES.
% endif
% endif
% if growth and sharing:
 * The states are also those of ${" and ".join(sharing)}: initialise an instance for ${"both networks" if len(sharing) == 1 else "all of these networks"} before its first inference, with the same arena.
% endif
 */
enum deeploy_status ${prefix}_instance_init(${instance} *instance, void *arena, size_t bytes);

/* One inference. Arrays are the caller's, aligned to their element type, dense, outermost axis first.\
% if growth:

 * It appends ${P}_ROWS rows to the states, at ${prefix}_instance_position, which moves on behind them. Axes along which the states
 * grow have room for ${P}_CONTEXT entries in every array; as many as there are rows then are read or written.
 * ${"Where there are rows already" if growth.begins else "Without room for more rows"} it returns DEEPLOY_ERROR_CONTEXT and changes nothing.\
% endif
 */
enum deeploy_status ${prefix}_instance_run(${instance} *instance, const void *const *inputs, void *const *outputs);

% if growth:
/* Rows that the states hold; 0 after ${prefix}_instance_init. */
uint32_t ${prefix}_instance_position(const ${instance} *instance);

/* Forget all rows from ${"position"} on: 0 begins a new sequence. Behind the last row there is nothing to go to. */
enum deeploy_status ${prefix}_instance_seek(${instance} *instance, uint32_t position);

% endif
% if generator:
/* Memory that writing needs, beside an instance: for as long as the function runs. */
struct ${prefix}_writer {
% for array in generator.arrays:
    ${array.type} ${array.name}[${array.elements}];${f" /* {array.comment} */" if array.comment else ""}
% endfor
};

/* Writes tokens behind a prompt, which comes behind the rows that the states hold: ${prefix}_instance_seek(instance, 0) begins a new text.
 * It ends after `most` tokens, after the token `end`, when on_token says so, or when the states are full, all of which is
 * DEEPLOY_OK. The last token written is not in the states: begin the next prompt with it to go on.
% if generator.prompt:
 * Prompts of ${generator.worth} tokens and more are read by network ${generator.prompt.prefix}, ${f"their first {generator.prompt.rows} at once where the states are empty" if generator.prompt.begins else f"{generator.prompt.rows} at a time"}; it has to be initialised too.
% endif
 * DEEPLOY_ERROR_CONTEXT where the prompt has no room, DEEPLOY_ERROR_TOKEN where it is empty or has a token outside 0 to ${generator.step.tokens - 1}:
 * then nothing is changed. */
enum deeploy_status ${prefix}_instance_generate(${instance} *instance, struct ${prefix}_writer *writer,
                                                struct deeploy_generation *generation);

% endif
/* The same on ${lead}_default_instance. The arena NULL selects a static one, which exists when compiled with -DDEEPLOY_STATIC_ARENA. */
enum deeploy_status ${prefix}_init(void *arena, size_t bytes);
enum deeploy_status ${prefix}_run(const void *const *inputs, void *const *outputs);
% if growth:
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
