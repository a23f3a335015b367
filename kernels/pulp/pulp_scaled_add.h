/* Sum of two operands of bytes, each by its own factor: clip((a*mul_a + b*mul_b + add) >> shift), in 32 bits.
 *
 * Factors and add are cut into halves of 16 bits, lower ones unsigned: the sum of the lower products is carried into
 * that of the upper ones, and both fit. */
#ifndef DEEPLOY_PULP_SCALED_ADD_H
#define DEEPLOY_PULP_SCALED_ADD_H

#include <stdint.h>

struct pulp_scaled_add {
    const void *a;
    const void *b;
    void *y;
    int extent[6], a_step[6], b_step[6], y_step[6];
    int32_t a_low, a_high, b_low, b_high, add_low, add_high;
    int shift; /* of the upper half */
    int32_t low, high;
};

#endif
