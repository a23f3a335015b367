/* Depthwise convolution of a channels-last image of bytes: one filter per channel. Weights are stored [kernel_h,
 * kernel_w, channels]. */
#ifndef DEEPLOY_ARM_DEPTHWISE_H
#define DEEPLOY_ARM_DEPTHWISE_H

#include "../portable/epilogue.h"

struct arm_depthwise {
    const void *x; /* [batch, height, width, channels] */
    const void *w;
    void *y; /* [batch, out_height, out_width, channels] */
    int batch, height, width, channels;
    int out_height, out_width;
    int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int top, left;                /* rows and columns read before the first one of x */
    int zero_point;               /* what is read outside x */
    int x_batch, x_row, x_column; /* strides in elements; channels are dense */
    int y_batch, y_row, y_column;
    void *words; /* copies of what is under a row of outputs */
    struct epilogue epilogue;
};

#endif
