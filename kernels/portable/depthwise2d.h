/* Depthwise convolution of a channels-last image: every channel has `multiplier` filters of its own. */
#ifndef DEEPLOY_DEPTHWISE2D_H
#define DEEPLOY_DEPTHWISE2D_H

#include "epilogue.h"

struct depthwise2d {
    const void *x; /* [batch, height, width, filters / multiplier] */
    const void *w; /* [kernel_h, kernel_w, filters] */
    void *y;       /* [batch, out_height, out_width, filters] */
    int batch, height, width;
    int filters, multiplier;
    int out_height, out_width;
    int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int top, left;                /* rows and columns read before the first one of x */
    int zero_point;               /* what is read outside x */
    int x_batch, x_row, x_column; /* strides in elements; channels are dense */
    int y_batch, y_row, y_column;
    struct epilogue epilogue;
};

#endif
