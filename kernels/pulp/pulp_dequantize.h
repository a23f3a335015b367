/* (x - zero_point) * scale with one scale and zero point for all. */
#ifndef DEEPLOY_PULP_DEQUANTIZE_H
#define DEEPLOY_PULP_DEQUANTIZE_H

#include <stdint.h>

struct pulp_dequantize {
    const void *x;
    const float *scale;
    const int32_t *zero_point;
    void *y;
    int extent[6], x_step[6], y_step[6];
};

#endif
