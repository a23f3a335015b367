/* Norms of dense float rows: (x - mean) / sqrt(mean square + epsilon) * scale + offset. */
#ifndef DEEPLOY_NORMALISE_H
#define DEEPLOY_NORMALISE_H

#include <stdint.h>

struct normalise {
    const void *x;
    const void *scale;  /* one per column */
    const void *offset; /* one per column, or 0 */
    void *y;
    int extent[6], x_step[6], y_step[6]; /* the last axis is the row */
    int centred;                         /* whether the mean is taken off */
    float epsilon;
};

#endif
