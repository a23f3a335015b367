/* What main.c wants to know of the machine. */
#ifndef BOARD_H
#define BOARD_H

#include "pulp.h"

enum { BARE_CORES = CLUSTER_CORES };

/* As rt_cycles, without a call. */
static inline uint32_t bare_cycles(void) {
    return load(CLUSTER_TIMER + 0x08);
}

#endif
