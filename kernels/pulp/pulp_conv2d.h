/* Convolution of a channels-last image, in groups, on bytes. Weights are stored [groups * filters, kernel_h, kernel_w,
 * channels]. */
#ifndef DEEPLOY_PULP_CONV2D_H
#define DEEPLOY_PULP_CONV2D_H

#include "pulp_product.h"

struct pulp_conv2d {
    const void *x; /* [batch, height, width, groups * channels] */
    const void *w;
    void *y; /* [batch, out_height, out_width, groups * filters] */
    int batch, height, width;
    int groups, channels; /* channels are those of one group */
    int out_height, out_width;
    int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int top, left;                /* rows and columns read before the first one of x */
    int zero_point;               /* what is read outside x */
    int x_batch, x_row, x_column; /* strides in elements; channels are dense */
    int y_batch, y_row, y_column;
    void *windows; /* the calling core's own: room for that many windows, or as many as a row of y has, `pitch` bytes
                      apart; 0 where every window is one pixel of x */
    int room, pitch;
    int is_filled; /* 1: behind the windows there is room for the filters, filled up to `pitch` bytes; one group */
    struct pulp_product product;
};

#endif
