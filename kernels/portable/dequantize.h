/* (x - zero_point) * scale. */
#ifndef DEEPLOY_DEQUANTIZE_H
#define DEEPLOY_DEQUANTIZE_H

#include <stdint.h>

struct dequantize {
    const void *x;
    const void *scale;
    const void *zero_point;
    void *y;
    int extent[6], x_step[6], scale_step[6], zero_point_step[6], y_step[6];
};

#endif
