/* Sum of several terms of 32 bits, requantised, to which a residual connection is added. */
#ifndef DEEPLOY_PULP_RESIDUAL_SUM_H
#define DEEPLOY_PULP_RESIDUAL_SUM_H

#include "pulp_epilogue.h"

struct pulp_residual_sum {
    const void *x;
    const void *b;
    void *y;
    int core;          /* which of the team */
    int terms, x_term; /* two or more, and elements from one to the next */
    int extent[3], x_step[3], b_step[3], y_step[3];
    const int32_t *mul, *add; /* of channels, where they differ */
    struct pulp_requantisation requantisation;
    int32_t low, high;            /* of the sum */
    int32_t a_mul, b_mul, offset; /* of the sum and b, without a value beyond 32 bits */
    int result_shift;
    int32_t result_low, result_high;
};

#endif
