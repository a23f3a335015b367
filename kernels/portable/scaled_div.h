/* Quotient of two 8-bit operands in units of the result: rounded half up, clipped; docs/integer-form.md, ScaledDiv. */
#ifndef DEEPLOY_SCALED_DIV_H
#define DEEPLOY_SCALED_DIV_H

#include <stdint.h>

struct scaled_div {
    const void *a;
    const void *b;
    void *y;
    int extent[6], a_step[6], b_step[6], y_step[6];
    int a_zero_point, b_zero_point, zero_point;
    int64_t mul;
    int shift;
    int32_t low, high;
};

#endif
