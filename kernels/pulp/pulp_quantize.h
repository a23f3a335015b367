/* clip(round_half_even(x / scale) + zero_point) with one scale and zero point for all; NaN gives low. */
#ifndef DEEPLOY_PULP_QUANTIZE_H
#define DEEPLOY_PULP_QUANTIZE_H

#include <stdint.h>

struct pulp_quantize {
    const void *x;
    const float *scale;
    const int32_t *zero_point;
    void *y;
    int extent[6], x_step[6], y_step[6];
    int32_t low, high;
};

#endif
