/* A layer that one core computes. */
#ifndef DEEPLOY_ALONE_H
#define DEEPLOY_ALONE_H

#include "recurrent.h"

static inline int core_of_team(void) {
    return 0;
}

static inline void meet(const struct recurrent *k) {
    (void)k;
}

#endif
