/* Types and status codes that all networks of a project share. */
#ifndef DEEPLOY_NETWORK_H
#define DEEPLOY_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#define DEEPLOY_ABI_VERSION 5

/* Where things lie: attributes that a program may define for all sources of its networks, such as __attribute__((section(".itcm"))).
 * DEEPLOY_CONSTANTS stands before the arrays of constants, DEEPLOY_CODE before the functions of kernels, DEEPLOY_ARENA before a
 * static arena (-DDEEPLOY_STATIC_ARENA).
 */
#ifndef DEEPLOY_ARENA
#define DEEPLOY_ARENA
#endif

#ifdef __cplusplus
extern "C" {
#endif

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
    DEEPLOY_ERROR_NOT_INITIALISED = 1, /* the instance was not initialised */
    DEEPLOY_ERROR_ARENA = 2,           /* the arena is missing, too small or not aligned */
    DEEPLOY_ERROR_NULL = 3,            /* a required pointer is NULL: an input, an output or the weights */
    DEEPLOY_ERROR_CONTEXT = 4,         /* the states have no such row, or no room for more rows */
    DEEPLOY_ERROR_TOKEN = 5,           /* the prompt is empty, or has a token outside the vocabulary */
    DEEPLOY_ERROR_STATES = 6,          /* the scratchpad memories hold the states of another instance */
    DEEPLOY_ERROR_WEIGHTS = 7,         /* the binary weights are damaged, not aligned to 16 bytes, or those of another network */
    DEEPLOY_ERROR_NOT_STARTED = 8,     /* PREFIX_step without PREFIX_start */
    DEEPLOY_UNFINISHED = 9             /* no error: PREFIX_step has further layers to run */
};

/* An input or output. For integer types, real value = scale * (stored value - zero_point). */
struct deeploy_tensor {
    const char *name;
    enum deeploy_type type;
    int rank;
    const int32_t *shape;
    size_t bytes;
    float scale;
    int32_t zero_point;
};

/* The request to generate tokens, and its result (`count` and `tokens`). */
struct deeploy_generation {
    const int32_t *prompt;
    uint32_t prompt_tokens;
    uint32_t most;        /* the most tokens to generate */
    int32_t end;          /* the token that ends a text, and is generated last; -1: there is none */
    uint32_t temperature; /* in thousandths; 0 always takes the most probable token */
    uint32_t top_p;       /* nucleus sampling, in thousandths: sample from the most probable tokens whose probabilities sum
                             to this; 0 or 1000 samples from all. Tokens whose probabilities differ by less than a factor
                             of 2^(1/8) are taken or left out together. */
    uint64_t seed;        /* equal seeds give equal texts on every machine */
    int32_t *tokens;      /* receives the generated tokens, with room for `most`; may be NULL */
    int (*on_token)(int32_t token, void *user); /* called for each token; non-zero ends the text; may be NULL */
    void *user;
    uint32_t count; /* tokens generated */
};

/* One network of the project, for code that handles any of them. The functions work on its default instance. */
struct deeploy_network {
    const char *name;
    size_t arena_bytes;
    int input_count;
    int output_count;
    const struct deeploy_tensor *inputs;
    const struct deeploy_tensor *outputs;
    enum deeploy_status (*init)(void *arena, size_t bytes);
    enum deeploy_status (*run)(const void *const *inputs, void *const *outputs);
    uint32_t context; /* the most rows that the states can hold; 0 if nothing outlives an inference */
    uint32_t (*position)(void);
    enum deeploy_status (*seek)(uint32_t position);
    enum deeploy_status (*generate)(struct deeploy_generation *generation); /* NULL unless the network generates tokens */
};

/* The networks of a project. If you link several projects, this is the list of one of them; use PREFIX_network for the others. */
extern const struct deeploy_network *const deeploy_networks[];
extern const int deeploy_network_count;

#ifdef DEEPLOY_PROFILE
/* You define this function. It is called before (end = 0) and after (end = 1) every layer. */
void deeploy_profile(const char *layer, int index, int end);
#endif

#ifdef __cplusplus
}
#endif

#endif
