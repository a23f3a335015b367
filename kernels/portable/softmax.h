/* Softmax of dense rows; integers by a table of exponentials of the distance from the maximum. */
#ifndef DEEPLOY_SOFTMAX_H
#define DEEPLOY_SOFTMAX_H

#include <stdint.h>

struct softmax {
    const void *x;
    const uint32_t *table; /* 256 entries; integers only */
    void *y;
    int extent[6], x_step[6], y_step[6]; /* the last axis is the row */
    int levels, zero_point; /* y = e / sum * levels + zero_point; integers only */
    int32_t low, high;
};

#endif
