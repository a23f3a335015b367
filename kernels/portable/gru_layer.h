/* A GRU of floats, for sources that have core_of_team and meet. RESETS_PRODUCT: its reset gate multiplies the product
 * with the state, not the state. */
#ifndef DEEPLOY_GRU_LAYER_H
#define DEEPLOY_GRU_LAYER_H

#include "gru_unit.h"
#include "recurrent_layer.h"

static inline void step_resetting_product(const struct recurrent *k, const float *p, const float *h, float *y,
                                          int begin, int end) {
    const int units = k->units, next = units * units;
    const R_T *const r = (const R_T *)k->r;
    for (int u = begin; u < end; u++) {
        float a[GATES] = {0};
        multiply(a, h, r + u * units, units, next, GATES);
        const float update = gate(k, p[u] + a[0]), reset = gate(k, p[k->p_gate + u] + a[1]);
        y[u] = gru(k, update, p[2 * k->p_gate + u] + reset * (a[2] + ((const float *)k->b)[u]), h[u]);
    }
}

static inline void step_resetting_state(const struct recurrent *k, const float *p, const float *h, float *y, int begin,
                                        int end) {
    const int units = k->units, next = units * units;
    const R_T *const r = (const R_T *)k->r;
    for (int u = begin; u < end; u++) {
        float a[GATES] = {p[u], p[k->p_gate + u]};
        multiply(a, h, r + u * units, units, next, 2);
        k->state[u] = gate(k, a[0]), k->state[units + u] = gate(k, a[1]) * h[u];
    }
    meet(k);
    for (int u = begin; u < end; u++) {
        float a = p[2 * k->p_gate + u];
        multiply(&a, k->state + units, r + 2 * next + u * units, units, next, 1);
        y[u] = gru(k, k->state[u], a, h[u]);
    }
}

static void step(const struct recurrent *k, int n, int is_first, const float *p, const float *h, float *y, int begin,
                 int end) {
    (void)n, (void)is_first;
    if (RESETS_PRODUCT)
        step_resetting_product(k, p, h, y, begin, end);
    else
        step_resetting_state(k, p, h, y, begin, end);
}

#endif
