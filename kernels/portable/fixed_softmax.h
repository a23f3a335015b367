/* Softmax of dense rows of 8-bit values in words, as TensorFlow Lite's reference kernel computes it. */
#ifndef DEEPLOY_FIXED_SOFTMAX_H
#define DEEPLOY_FIXED_SOFTMAX_H

#include <stdint.h>

struct fixed_softmax {
    const void *x;
    const void *table; /* exponentials of 256 distances from the maximum, 31 bits behind the point */
    void *y;
    int extent[6], x_step[6], y_step[6]; /* the last axis is the row */
    int zero_point;                      /* y = e / sum * 256 + zero_point */
    int32_t low, high;
};

#endif
