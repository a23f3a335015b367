/* Depthwise 3x3 convolution of a channels-last image of bytes. Weights are stored [channels, kernel_w, kernel_h].
 * The macros STRIDE_H and STRIDE_W are 1 or 2. */
#ifndef DEEPLOY_PULP_DEPTHWISE_H
#define DEEPLOY_PULP_DEPTHWISE_H

#include "pulp_epilogue.h"

struct pulp_depthwise {
    const void *x; /* [batch, height, width, channels] */
    const void *w;
    void *y; /* [batch, out_height, out_width, channels] */
    int batch, height, width, channels;
    int out_height, out_width;
    int top, left;                /* rows and columns read before the first one of x */
    int zero_point;               /* what is read outside x */
    int x_batch, x_row, x_column; /* strides in elements; channels are dense */
    int y_batch, y_row, y_column;
    uint32_t *columns; /* the calling core's own: room for columns of 4 * STRIDE_H words each, at least three of
                          them */
    int room;
    struct pulp_epilogue epilogue;
    struct pulp_requantisation requantisation;
};

#endif
