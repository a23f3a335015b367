/* What stands around the butterflies of a transform in 16 bits (fixed_fourier.c): the order of pairs, and their parts.
 */
#ifndef DEEPLOY_FIXED_STEPS_H
#define DEEPLOY_FIXED_STEPS_H

#include <stdint.h>

#define HALF_STEP (1 << 15)

static inline int16_t half(int32_t sum) {
    return (int16_t)((sum + 1) >> 1);
}

/* What is rounded to 16 bits of sums in units of 2^-16. */
static inline int16_t upper(int32_t sum) {
    return (int16_t)((sum + HALF_STEP) >> 16);
}

static inline int16_t clip(int32_t sum) {
    return (int16_t)(sum > INT16_MAX ? INT16_MAX : sum);
}

static inline void reorder(const int16_t *x, int16_t *y, int pairs) {
    for (int i = 0, j = 0; i < pairs; i++) {
        y[2 * j] = half(x[2 * i]);
        y[2 * j + 1] = half(x[2 * i + 1]);
        int bit = pairs >> 1;
        for (; bit && (j & bit); bit >>= 1) j ^= bit;
        j |= bit;
    }
}

static inline void take_apart(int16_t *y, const int16_t *w, int pairs) {
    const int32_t first = y[0], second = y[1];
    y[0] = clip(first + second);
    y[1] = 0;
    y[2 * pairs] = clip(first - second);
    y[2 * pairs + 1] = 0;
    for (int k = 1; k <= pairs / 2; k++) {
        int16_t *const a = y + 2 * k, *const b = y + 2 * (pairs - k);
        const int16_t *const turn = w + 2 * k;
        const int32_t odd[2] = {a[1] + b[1], b[0] - a[0]};
        const int32_t even[2] = {(a[0] + b[0]) * 32768, (a[1] - b[1]) * 32768};
        const int32_t re = odd[0] * turn[0] - odd[1] * turn[1], im = odd[0] * turn[1] + odd[1] * turn[0];
        a[0] = upper(even[0] + re);
        a[1] = upper(even[1] + im);
        b[0] = upper(even[0] - re);
        b[1] = upper(im - even[1]);
    }
}

#endif
