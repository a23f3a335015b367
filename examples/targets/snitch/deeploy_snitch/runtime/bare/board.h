/* What main.c wants to know of the machine. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

enum { COMPUTING_CORES = 8, MOVER = COMPUTING_CORES, BARE_CORES };

static inline uint32_t bare_cycles(void) {
    uint32_t cycles;
    __asm__ volatile("csrr %0, mcycle" : "=r"(cycles));
    return cycles;
}

#endif
