/* Convolution of a channels-last image, in groups. Weights are stored [kernel_h, kernel_w, channels, groups * filters].
 */
#ifndef DEEPLOY_CONV2D_H
#define DEEPLOY_CONV2D_H

#include "epilogue.h"

struct conv2d {
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
    int w_row, w_column, w_channel; /* filters are dense */
    struct epilogue epilogue;
};

#endif
