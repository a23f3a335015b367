/* What the applications of every platform share: memory for tensors and, with -DDEEPLOY_PROFILE, cycles of layers. */
#ifndef MEASURE_H
#define MEASURE_H

#include "deeploy_network.h"
#include "deeploy_rt.h"

/* Memory for every tensor; returns how many bytes they have together. */
static inline uint32_t allocate_tensors(void **arrays, const struct deeploy_tensor *tensors, int count,
                                        void *(*allocate)(uint32_t bytes)) {
    uint32_t bytes = 0;
    for (int i = 0; i < count; i++) {
        arrays[i] = allocate(tensors[i].bytes);
        bytes += tensors[i].bytes;
    }
    return bytes;
}

#ifndef CYCLES
#define CYCLES rt_cycles /* or what is faster */
#endif

#ifdef DEEPLOY_PROFILE
enum { LAYERS = 1024 };

static struct {
    const char *name;
    uint32_t begin, cycles;
} layers[LAYERS];

static uint32_t measuring; /* cycles that this function itself took: they count for nothing */

/* On core 0. A layer that is called several times gets the sum. */
void deeploy_profile(const char *layer, int index, int end) {
    const uint32_t begin = CYCLES();
    if (index < LAYERS) {
        const uint32_t now = begin - measuring;
        if (end)
            layers[index].cycles += now - layers[index].begin;
        else
            layers[index].name = layer, layers[index].begin = now;
    }
    measuring += CYCLES() - begin;
}

/* Cycles of what runs, without those of measuring it. */
static inline uint32_t measured_cycles(void) {
    return CYCLES() - measuring;
}
#else
static inline uint32_t measured_cycles(void) {
    return CYCLES();
}
#endif

#endif
