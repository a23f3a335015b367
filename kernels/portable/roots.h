/* Integer square roots. */
#ifndef DEEPLOY_ROOTS_H
#define DEEPLOY_ROOTS_H

#include <stdint.h>

/* floor(sqrt(value)), a bit at a time. */
static inline uint32_t integer_root(uint64_t value) {
    uint64_t root = 0, bit = (uint64_t)1 << 62;
    while (bit > value) bit >>= 2;
    for (; bit; bit >>= 2) {
        if (value >= root + bit) {
            value -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    return (uint32_t)root;
}

#endif
