/* Fractions of 31 bits, as TensorFlow Lite's reference kernels multiply and divide them. */
#ifndef DEEPLOY_FRACTIONS_H
#define DEEPLOY_FRACTIONS_H

#include <stdint.h>

/* The product of two fractions. */
static inline int32_t multiply_fractions(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
}

/* x / 2^bits, half away from zero. */
static inline int32_t divide_rounding(int32_t x, int bits) {
    return (int32_t)((x + ((int64_t)1 << bits >> 1) - (x < 0 && bits > 0)) >> bits);
}

#endif
