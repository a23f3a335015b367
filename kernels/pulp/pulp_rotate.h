/* Rotary embedding of bytes, in 32 bits: see portable/rotate.h. */
#ifndef DEEPLOY_PULP_ROTATE_H
#define DEEPLOY_PULP_ROTATE_H

#include <stdint.h>

/* A product that is limited and requantised: by (upper word of (acc << left)*mul + add) >> shift, where that is not in
 * 32 bits as it stands. */
struct pulp_rotate_product {
    int32_t a_zero_point, b_zero_point, limit;
    int32_t mul, add;
    int left, shift;
    int32_t low, high;
};

/* Factors and summand; with SUM_HALVES their upper and their lower 16 bits. */
struct pulp_rotate_sum {
    int32_t a_mul, b_mul, add, a_low, b_low, add_low;
    int shift;
    int32_t low, high;
};

struct pulp_rotate {
    const void *x, *cosine, *sine;
    const void *table; /* [2][256]: the turned element for one of the second half, and of the first */
    void *y;
    int extent[6], x_step[6], cosine_step[6], sine_step[6], y_step[6]; /* the last axis is the row */
    int is_interleaved;
    int32_t smallest; /* value of X_T */
    struct pulp_rotate_product by_cosine, by_sine;
    struct pulp_rotate_sum sum;
};

#endif
