/* Rows times a matrix whose columns are zero but for a run of elements each. */
#ifndef DEEPLOY_BAND_MATMUL_H
#define DEEPLOY_BAND_MATMUL_H

#include <stdint.h>

struct band_matmul {
    const float *x, *w;
    const int32_t *spans; /* of each column: the first element of x, that of w, and how many there are */
    float *y;
    int rows, columns, x_step, y_step;
};

#endif
