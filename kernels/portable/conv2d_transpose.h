/* Transposed convolution of a channels-last image, with groups: every output gathers the inputs whose taps reach it. */
#ifndef DEEPLOY_CONV2D_TRANSPOSE_H
#define DEEPLOY_CONV2D_TRANSPOSE_H

#include "epilogue.h"

struct conv2d_transpose {
    const void *x; /* [batch, height, width, channels] */
    const void *w; /* [kernel_h, kernel_w, channels, out_channels / groups] */
    void *y;       /* [batch, out_height, out_width, out_channels] */
    int batch, height, width, channels;
    int out_height, out_width, out_channels, groups;
    int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int top, left; /* rows and columns of the full result cut off at its beginning */
    int zero_point;
    int x_batch, x_row, x_column; /* strides in elements; channels are dense */
    int y_batch, y_row, y_column;
    struct epilogue epilogue;
};

#endif
