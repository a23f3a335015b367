/* A network with its arrays, in the memory that the program leaves over. */
#ifndef DEEPLOY_PROGRAM_H
#define DEEPLOY_PROGRAM_H

#include "deeploy_network.h"

struct program {
    const struct deeploy_network *net;
    void **inputs, **outputs, *arena;
};

/* Memory that is never given back, aligned to 64 bytes; where there is none left, the program fails. */
void *program_allocate(uint32_t bytes);
/* Allocates the arrays of a network, and initialises it. */
struct program program_begin(const struct deeploy_network *net);
uint32_t program_bytes(const struct deeploy_tensor *tensors, int count);
/* Says what went wrong and does not return. The file with `main` defines it. */
_Noreturn void program_fail(const char *what);

#endif
