/* Transposed convolution of a channels-last image, in groups: every output gathers the inputs whose taps reach it. */
#ifndef DEEPLOY_CONV2D_TRANSPOSE_H
#define DEEPLOY_CONV2D_TRANSPOSE_H

#include "epilogue.h"

struct conv2d_transpose {
    const void *x; /* [batch, height, width, groups * channels] */
    const void *w; /* [kernel_h, kernel_w, groups * channels, filters] */
    void *y;       /* [batch, out_height, out_width, groups * filters] */
    int batch, height, width;
    int groups, channels, filters; /* channels and filters are those of one group */
    int out_height, out_width;
    int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int top, left; /* rows and columns of the full result that are cut off at its beginning */
    int zero_point;
    int x_batch, x_row, x_column; /* strides in elements; channels are dense */
    int y_batch, y_row, y_column;
    struct epilogue epilogue;
};

#endif
