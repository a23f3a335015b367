/* Softmax of dense rows with powers of two instead of exponentials; the running maximum is updated group by group. */
#ifndef DEEPLOY_SHIFT_SOFTMAX_H
#define DEEPLOY_SHIFT_SOFTMAX_H

#include <stdint.h>

struct shift_softmax {
    const void *x;
    void *y;
    int extent[6], x_step[6], y_step[6]; /* the last axis is the row */
    int group;         /* elements after which the maximum is looked at again; an incomplete last group adds nothing */
    int32_t numerator; /* y = (numerator / sum of 256 >> s) >> s */
};

#endif
