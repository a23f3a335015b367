/* Softmax of dense rows of 8-bit values by a table of exponentials of the distance from the maximum. */
#ifndef DEEPLOY_TABLE_SOFTMAX_H
#define DEEPLOY_TABLE_SOFTMAX_H

#include <stdint.h>

struct table_softmax {
    const void *x;
    const void *table;   /* 256 entries, or four numbers that say them */
    const void *results; /* what becomes of every result, 256 entries, or none */
    void *y;
    int extent[6], x_step[6], y_step[6]; /* the last axis is the row */
    int levels, zero_point;              /* y = e / sum * levels + zero_point */
    int32_t low, high, smallest;         /* smallest: the result that `results` begins with */
};

#endif
