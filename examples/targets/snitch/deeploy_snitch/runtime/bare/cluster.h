/* What the parts of the runtime know of each other. */
#ifndef CLUSTER_H
#define CLUSTER_H

#include <stdint.h>

#include "deeploy_rt.h"

#define L1_BASE 0x10000000u
#define L1_BYTES 0x00020000u

/* What cores share lies in the reserved part of L1. */
#define IN_L1 __attribute__((section(".l1")))

/* Nothing moves across this, and what the unit for floating point still stores is stored: it works behind the core. */
static inline void order_memory(void) {
    uint32_t done;
    __asm__ volatile("fmv.x.w %0, fa0\n\tmv zero, %0\n\tfence" : "=r"(done)::"memory");
}

#endif
