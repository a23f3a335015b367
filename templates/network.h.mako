<% P = prefix.upper() %>\
/* Network ${prefix}, compiled from ${model} by deeploy ${version}. */
#ifndef ${P}_H
#define ${P}_H

#include "deeploy_network.h"

#define ${P}_INPUTS ${len(inputs)}
#define ${P}_OUTPUTS ${len(outputs)}
#define ${P}_LAYERS ${len(layers)}
#define ${P}_ARENA_BYTES ${arena_bytes}
#define ${P}_ARENA_ALIGNMENT ${alignment}

extern const struct deeploy_tensor ${prefix}_inputs[${max(1, len(inputs))}];
extern const struct deeploy_tensor ${prefix}_outputs[${max(1, len(outputs))}];
extern const struct deeploy_network ${prefix}_network;

/* Give the network its working memory: ${P}_ARENA_BYTES at a multiple of ${P}_ARENA_ALIGNMENT. Networks that never run at
 * the same time may share one arena. NULL selects a static arena, which exists when compiled with -DDEEPLOY_STATIC_ARENA. */
enum deeploy_status ${prefix}_init(void *arena, size_t bytes);

/* One inference. Arrays are the caller's, aligned to their element type, dense, outermost axis first. */
enum deeploy_status ${prefix}_run(const void *const *inputs, void *const *outputs);

#endif
