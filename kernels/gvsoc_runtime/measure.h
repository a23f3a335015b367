/* Shared by the applications of all platforms: memory for tensors and, with -DDEEPLOY_PROFILE, cycles of layers. */
#ifndef MEASURE_H
#define MEASURE_H

#include "deeploy_network.h"
#include "deeploy_rt.h"

/* Allocates memory for every tensor and returns the sum of their bytes. */
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
#define CYCLES rt_cycles /* or a faster function */
#endif

#ifdef DEEPLOY_PROFILE
enum { LAYERS = 1024 };

static struct {
    const char *name;
    uint32_t begin, cycles;
} layers[LAYERS];

static uint32_t measuring; /* cycles that this function itself took, which are subtracted */

/* Called on core 0. A layer that is called several times gets the sum. */
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

/* Cycles of the network, without those of the measurement. */
static inline uint32_t measured_cycles(void) {
    return CYCLES() - measuring;
}
#else
static inline uint32_t measured_cycles(void) {
    return CYCLES();
}
#endif

#endif
