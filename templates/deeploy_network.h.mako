/* What every network of a project has in common. */
#ifndef DEEPLOY_NETWORK_H
#define DEEPLOY_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#define DEEPLOY_ABI_VERSION 4

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
    DEEPLOY_ERROR_NOT_INITIALISED = 1, /* run before init */
    DEEPLOY_ERROR_ARENA = 2,           /* the arena is missing, too small or not aligned */
    DEEPLOY_ERROR_NULL = 3,            /* an input, an output or the weights are missing */
    DEEPLOY_ERROR_CONTEXT = 4,         /* a position beyond the rows that there are, or that there is room for */
    DEEPLOY_ERROR_TOKEN = 5,           /* a prompt without tokens, or with one that the network does not know */
    DEEPLOY_ERROR_STATES = 6           /* the machine's memories hold the states of another instance */
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

/* What a network that scores the next token is asked to write, and what it wrote. */
struct deeploy_generation {
    const int32_t *prompt;
    uint32_t prompt_tokens;
    uint32_t most;        /* tokens to be written at most */
    int32_t end;          /* the token that ends a text, and is the last one written; -1: there is none */
    uint32_t temperature; /* in thousandths; 0 takes the best token every time */
    uint32_t top_p;       /* the share in thousandths that the most probable tokens have together, of which one is drawn;
                             0 or 1000: of all. Tokens within an eighth of an octave of probability are kept together. */
    uint64_t seed;        /* equal seeds give equal texts, on every machine */
    int32_t *tokens;      /* receives what is written, with room for `most`; may be NULL */
    int (*on_token)(int32_t token, void *user); /* called with every token written, ends the text if not 0; may be NULL */
    void *user;
    uint32_t count; /* tokens written */
};

/* One network of the project, for code that handles any of them; functions work on its default instance. */
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
    enum deeploy_status (*generate)(struct deeploy_generation *generation); /* 0 where a network does not write */
};

/* The networks of a project. Where several projects are linked, it is the list of one of them: name their networks there (PREFIX_network). */
extern const struct deeploy_network *const deeploy_networks[];
extern const int deeploy_network_count;

#ifdef DEEPLOY_PROFILE
/* Yours to define: called before (end = 0) and after (end = 1) every layer. */
void deeploy_profile(const char *layer, int index, int end);
#endif

#ifdef __cplusplus
}
#endif

#endif
