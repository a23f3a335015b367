/* clip(round_half_even(x / scale) + zero_point); NaN gives low. */
#ifndef DEEPLOY_QUANTIZE_H
#define DEEPLOY_QUANTIZE_H

#include <stdint.h>

struct quantize {
    const void *x;
    const void *scale;
    const void *zero_point;
    void *y;
    int extent[6], x_step[6], scale_step[6], zero_point_step[6], y_step[6];
    int32_t low, high;
};

#endif
