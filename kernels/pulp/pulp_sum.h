/* Sum of several terms of 32 bits, as they are, or requantised. */
#ifndef DEEPLOY_PULP_SUM_H
#define DEEPLOY_PULP_SUM_H

#include "pulp_epilogue.h"

struct pulp_sum {
    const void *x;
    void *y;
    int core;          /* which of the team */
    int terms, x_term; /* two or more, and elements from one to the next */
    int extent[3], x_step[3], y_step[3];
    const int32_t *mul, *add; /* of channels, where they differ */
    struct pulp_requantisation requantisation;
    int32_t low, high;
};

#endif
