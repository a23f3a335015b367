/* Softmax of dense rows of bytes by a table; a call may be for some columns of rows that are added up whole. */
#ifndef DEEPLOY_PULP_SOFTMAX_H
#define DEEPLOY_PULP_SOFTMAX_H

#include <stdint.h>

struct pulp_softmax {
    const void *x;       /* whole rows */
    const void *table;   /* 256 entries, by the distance from the maximum */
    const void *results; /* what becomes of every result, 256 entries, or none */
    void *y;
    int columns, first;                  /* of whole rows; the one that y begins with */
    int extent[6], x_step[6], y_step[6]; /* of y; the last axis is the row */
    int levels, zero_point;              /* y = e / sum * levels + zero_point */
    int32_t low, high, smallest;         /* smallest: the result that `results` begins with */
    int bits;                            /* of the largest entry times levels */
};

#endif
