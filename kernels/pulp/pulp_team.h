/* A layer whose units a team of cores divides. */
#ifndef DEEPLOY_PULP_TEAM_H
#define DEEPLOY_PULP_TEAM_H

#include "../portable/recurrent.h"
#include "deeploy_rt.h"

static inline int core_of_team(void) {
    return rt_core();
}

static inline void meet(const struct recurrent *k) {
    if (k->cores > 1) rt_barrier();
}

#endif
