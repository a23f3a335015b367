/* A unit of a GRU. */
#ifndef DEEPLOY_GRU_UNIT_H
#define DEEPLOY_GRU_UNIT_H

#include "recurrent_units.h"

enum { GATES = 3 };

static float gru(const struct recurrent *k, float update, float candidate, float before) {
    const float limited = within(k, candidate);
    (void)k;
    return (1 - update) * APPLY(G_FUNCTION, 1, limited) + update * before;
}

#endif
