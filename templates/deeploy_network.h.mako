/* What every network of a project has in common. */
#ifndef DEEPLOY_NETWORK_H
#define DEEPLOY_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#define DEEPLOY_ABI_VERSION 2

enum deeploy_type {
    DEEPLOY_INT8,
    DEEPLOY_UINT8,
    DEEPLOY_INT16,
    DEEPLOY_UINT16,
    DEEPLOY_INT32,
    DEEPLOY_UINT32,
    DEEPLOY_INT64,
    DEEPLOY_FLOAT32,
    DEEPLOY_BOOL
};

enum deeploy_status {
    DEEPLOY_OK = 0,
    DEEPLOY_ERROR_NOT_INITIALISED = 1, /* run before init */
    DEEPLOY_ERROR_ARENA = 2,           /* the arena is missing, too small or not aligned */
    DEEPLOY_ERROR_NULL = 3,            /* an input, an output or the weights are missing */
    DEEPLOY_ERROR_CONTEXT = 4          /* a position beyond the rows that there are, or that there is room for */
};

/* An input or output: value = scale * (stored - zero_point) where the stored type is an integer. */
struct deeploy_tensor {
    const char *name;
    enum deeploy_type type;
    int rank;
    const int32_t *shape;
    size_t bytes;
    float scale;
    int32_t zero_point;
};

/* One network of the project, for code that handles any of them. */
struct deeploy_network {
    const char *name;
    size_t arena_bytes;
    int input_count;
    int output_count;
    const struct deeploy_tensor *inputs;
    const struct deeploy_tensor *outputs;
    enum deeploy_status (*init)(void *arena, size_t bytes);
    enum deeploy_status (*run)(const void *const *inputs, void *const *outputs);
    uint32_t context; /* rows that the states hold at most; 0 where nothing outlives an inference */
    uint32_t (*position)(void);
    enum deeploy_status (*seek)(uint32_t position);
};

extern const struct deeploy_network *const deeploy_networks[];
extern const int deeploy_network_count;

#ifdef DEEPLOY_PROFILE
/* Yours to define: called before (end = 0) and after (end = 1) every layer. */
void deeploy_profile(const char *layer, int index, int end);
#endif

#endif
