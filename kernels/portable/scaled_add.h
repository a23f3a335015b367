/* Sum of two 8-bit operands, each by its own factor: clip((a*mul_a + b*mul_b + add) >> shift). */
#ifndef DEEPLOY_SCALED_ADD_H
#define DEEPLOY_SCALED_ADD_H

#include <stdint.h>

struct scaled_add {
    const void *a;
    const void *b;
    void *y;
    int extent[6], a_step[6], b_step[6], y_step[6];
    int64_t mul_a, mul_b, add;
    int shift;
    int even; /* parity of the zero point where ties go to the even multiple of the scale, else -1 */
    int32_t low, high;
};

#endif
