<% P = prefix.upper() %>\
/* Network ${prefix}, compiled from ${model} by deeploy ${version}. */
#ifndef ${P}_H
#define ${P}_H

#include "deeploy_network.h"

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

/* Give the network its working memory: ${P}_ARENA_BYTES at a multiple of ${P}_ARENA_ALIGNMENT. Networks that never run at
 * the same time may share one arena. NULL selects a static arena, which exists when compiled with -DDEEPLOY_STATIC_ARENA. */
enum deeploy_status ${prefix}_init(void *arena, size_t bytes);

% if growth:
/* One inference. Arrays are the caller's, aligned to their element type, dense, outermost axis first. It appends ${P}_ROWS
 * rows to the states, at ${prefix}_position(), which moves on behind them. Axes along which the states grow have room for
 * ${P}_CONTEXT entries in every array; as many as there are rows then are read or written. \
${"Where there are rows already" if growth.begins else "Without room for more rows"} it
 * returns DEEPLOY_ERROR_CONTEXT and changes nothing. \
% if sharing:
The states lie in the arena, and are also those of
 * ${" and ".join(sharing)}: give ${"it" if len(sharing) == 1 else "them"} the same arena, and initialise all before the first inference. */
% else:
The states lie in the arena: it is this network's alone. */
% endif
enum deeploy_status ${prefix}_run(const void *const *inputs, void *const *outputs);

/* Rows that the states hold; 0 after ${prefix}_init. */
uint32_t ${prefix}_position(void);

/* Forget all rows from ${"position"} on: 0 begins a new sequence. Behind the last row there is nothing to go to. */
enum deeploy_status ${prefix}_seek(uint32_t position);
% if generator:

/* Writes tokens behind a prompt, which comes behind the rows that the states hold: ${prefix}_seek(0) begins a new text. It ends after
 * `most` tokens, after the token `end`, when on_token says so, or when the states are full, all of which is DEEPLOY_OK. The last token
 * written is not in the states: begin the next prompt with it to go on.
% if generator.prompt:
 * Prompts of ${generator.worth} tokens and more are read by network ${generator.prompt.prefix}, ${f"their first {generator.prompt.rows} at once where the states are empty" if generator.prompt.begins else f"{generator.prompt.rows} at a time"}; it has to be initialised too.
% endif
 * DEEPLOY_ERROR_CONTEXT where the prompt has no room, DEEPLOY_ERROR_TOKEN where it is empty or has a token outside 0 to ${generator.step.tokens - 1}:
 * then nothing is changed. */
enum deeploy_status ${prefix}_generate(struct deeploy_generation *generation);
% endif
% else:
/* One inference. Arrays are the caller's, aligned to their element type, dense, outermost axis first. */
enum deeploy_status ${prefix}_run(const void *const *inputs, void *const *outputs);
% endif

#ifdef __cplusplus
}
#endif

#endif
