/* Rotary embedding: y = x * cos + turned * sin, turned = (-second half, first half) of every row; with interleaved
 * pairs, the halves are the elements of even and of odd index. */
#ifndef DEEPLOY_ROTATE_H
#define DEEPLOY_ROTATE_H

#include <stdint.h>

/* A product or a sum of two that is requantised: clip((value*mul + add) >> shift). */
struct rotate_product {
    int32_t a_zero_point, b_zero_point;
    int64_t mul, add;
    int shift;
    int32_t low, high;
    int even; /* parity of the results that ties go to, else -1 */
};

struct rotate_sum {
    int64_t mul_a, mul_b, add;
    int shift;
    int32_t low, high;
    int even;
};

struct rotate {
    const void *x, *cosine, *sine;
    const void *table; /* of integers, [2][256]: the turned element for one of the second half, and of the first */
    void *y;
    int extent[6], x_step[6], cosine_step[6], sine_step[6], y_step[6]; /* the last axis is the row */
    int is_interleaved;
    int32_t smallest; /* value of X_T */
    struct rotate_product by_cosine, by_sine;
    struct rotate_sum sum;
};

#endif
