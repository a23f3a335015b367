/* An LSTM of floats, for sources that have core_of_team and meet. */
#ifndef DEEPLOY_LSTM_LAYER_H
#define DEEPLOY_LSTM_LAYER_H

#include "lstm_unit.h"
#include "recurrent_layer.h"

static void step(const struct recurrent *k, int n, int is_first, const float *p, const float *h, float *y, int begin,
                 int end) {
    const int units = k->units, next = units * units;
    const R_T *const r = (const R_T *)k->r;
    float *const cells = (float *)k->cells + n * k->cells_batch;
    const float *const c = is_first ? (const float *)k->c + n * k->c_batch : cells;
    for (int u = begin; u < end; u++) {
        float a[GATES] = {0};
        multiply(a, h, r + u * units, units, next, GATES);
        for (int g = 0; g < GATES; g++) a[g] += p[g * k->p_gate + u];
        y[u] = lstm(k, a, c, cells, u);
    }
}

#endif
