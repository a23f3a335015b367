/* Convolution of a channels-last image, in groups, on 8-bit integers. Weights are stored [groups * filters, kernel_h,
 * kernel_w, channels], or as the packed bytes of such filters. */
#ifndef DEEPLOY_CONV2D_DOT_H
#define DEEPLOY_CONV2D_DOT_H

#include "epilogue.h"

struct conv2d_dot {
    const void *x; /* [batch, height, width, groups * channels] */
    const void *w;
    void *y; /* [batch, out_height, out_width, groups * filters] */
    int batch, height, width;
    int groups, channels, filters; /* channels and filters are those of one group */
    int out_height, out_width;
    int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int top, left;                /* rows and columns read before the first one of x */
    int zero_point;               /* what is read outside x */
    int x_batch, x_row, x_column; /* strides in elements; channels are dense */
    int y_batch, y_row, y_column;
    struct epilogue epilogue;
};

#endif
