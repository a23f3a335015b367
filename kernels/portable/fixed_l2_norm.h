/* Dense rows of 8-bit values divided by their length, as TensorFlow Lite's reference kernel computes it. */
#ifndef DEEPLOY_FIXED_L2_NORM_H
#define DEEPLOY_FIXED_L2_NORM_H

#include <stdint.h>

struct fixed_l2_norm {
    const void *x;
    void *y;
    int extent[6], x_step[6], y_step[6]; /* the last axis is the row */
    int zero_point;                      /* of x; y has steps of 1/128 */
};

#endif
