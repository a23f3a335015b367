/* Sum of partial sums, requantised, and a residual connection added by factors of its own. */
#ifndef DEEPLOY_RESIDUAL_SUM_H
#define DEEPLOY_RESIDUAL_SUM_H

#include <stdint.h>

/* What becomes of 64 bits: clip(sum >> shift, low, high). */
struct residual_range {
    int shift;
    int even; /* parity of the zero point where ties go to the even multiple of the scale, else -1 */
    int32_t low, high;
};

struct residual_sum {
    const void *x;
    const void *b;
    const void *mul;
    const void *add;
    void *y;
    int terms, x_term; /* partial sums, and elements from one to the next */
    int extent[6], x_step[6], b_step[6], y_step[6];
    int mul_step, add_step; /* along the last axis: 0 where one value serves all */
    struct residual_range sum, result;
    int64_t mul_a, mul_b, offset;
};

#endif
