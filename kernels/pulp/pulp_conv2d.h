/* Convolution of a channels-last image, in groups, on bytes. Weights are stored [groups * filters, kernel_h, kernel_w,
 * channels].
 *
 * Without further macros, every window is one pixel of x, in its place. With RUNS and GATHERED, a part of x is copied,
 * with what is around it. RUNS: windows are read there, rows of taps that are dense and of whole words. GATHERED:
 * windows are copied once more; FILLED: so are the filters of one group, to end with whole words. */
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
    void *patch;   /* the calling core's own: `room` bytes for a part of x with what is around it, which one position of
                      y sees at least, and three bytes more */
    void *windows; /* its own, too: room for `slots` windows, `pitch` bytes apart, and three bytes more */
    void *filled;  /* the same for the filters */
    int room, slots, pitch;
    struct pulp_product product;
};

#endif
