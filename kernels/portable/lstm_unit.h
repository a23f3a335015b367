/* A unit of an LSTM. */
#ifndef DEEPLOY_LSTM_UNIT_H
#define DEEPLOY_LSTM_UNIT_H

#include "recurrent_units.h"

enum { GATES = 4 };

/* The state of unit `u` from the sums of its gates. */
static float lstm(const struct recurrent *k, const float *a, const float *c, float *cells, int u) {
    const float *const w = k->w;
    const float before = c[u];
    const float input = gate(k, w ? a[0] + w[u] * before : a[0]);
    const float forget = k->input_forget ? 1 - input : gate(k, w ? a[2] + w[2 * k->w_gate + u] * before : a[2]);
    const float candidate = within(k, a[3]);
    const float cell = forget * before + input * APPLY(G_FUNCTION, 1, candidate);
    cells[u] = cell;
    return gate(k, w ? a[1] + w[k->w_gate + u] * cell : a[1]) * APPLY(H_FUNCTION, 2, cell);
}

#endif
