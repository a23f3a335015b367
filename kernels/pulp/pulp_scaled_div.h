/* Quotient of bytes, in 32 bits: see portable/scaled_div.h. */
#ifndef DEEPLOY_PULP_SCALED_DIV_H
#define DEEPLOY_PULP_SCALED_DIV_H

#include <stdint.h>

struct pulp_scaled_div {
    const void *a;
    const void *b;
    void *y;
    int extent[6], a_step[6], b_step[6], y_step[6];
    int a_zero_point, b_zero_point, zero_point;
    int32_t mul;
    int left, right; /* twice a numerator in units of the denominator is the upper word of (a << left)*mul, >> right */
    int32_t low, high;
};

#endif
