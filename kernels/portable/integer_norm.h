/* Norms of dense integer rows: distances from the mean, or from zero, over an integer square root of their mean square.
 */
#ifndef DEEPLOY_INTEGER_NORM_H
#define DEEPLOY_INTEGER_NORM_H

#include <stdint.h>

struct integer_norm {
    const void *x;
    const void *weight; /* one per column */
    const void *bias;   /* one per column; centred norms only */
    void *y;
    int extent[6], x_step[6], y_step[6]; /* the last axis is the row */
    int shift;
};

#endif
