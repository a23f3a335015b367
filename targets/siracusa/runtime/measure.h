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

#ifdef DEEPLOY_PROFILE
enum { LAYERS = 1024 };

static struct {
    const char *name;
    uint32_t begin, cycles;
} layers[LAYERS];

/* On core 0. A layer that is called several times gets the sum. */
void deeploy_profile(const char *layer, int index, int end) {
    if (index >= LAYERS) return;
    const uint32_t now = rt_cycles();
    if (end) layers[index].cycles += now - layers[index].begin;
    layers[index].name = layer;
    layers[index].begin = now;
}
#endif

#endif
