/* Fixed-point requantisation: clip((x*mul + add) >> shift); mul and add are broadcast. */
#ifndef DEEPLOY_REQUANT_SHIFT_H
#define DEEPLOY_REQUANT_SHIFT_H

#include <stdint.h>

struct requant_shift {
    const void *x;
    const void *mul;
    const void *add;
    void *y;
    int extent[6], x_step[6], mul_step[6], add_step[6], y_step[6];
    int shift;
    int32_t low, high;
};

#endif
