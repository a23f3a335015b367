/* A plain recurrent layer of floats, for sources that have core_of_team and meet. */
#ifndef DEEPLOY_RNN_LAYER_H
#define DEEPLOY_RNN_LAYER_H

#include "recurrent_units.h"

enum { GATES = 1 };
#include "recurrent_layer.h"

static void step(const struct recurrent *k, int n, int is_first, const float *p, const float *h, float *y, int begin,
                 int end) {
    const R_T *const r = (const R_T *)k->r;
    (void)n, (void)is_first;
    for (int u = begin; u < end; u++) {
        float a = 0;
        multiply(&a, h, r + u * k->units, k->units, 0, GATES);
        y[u] = gate(k, p[u] + a);
    }
}

#endif
