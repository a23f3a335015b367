/* Convolution of a channels-last image of bytes, in groups. Weights are stored [groups * filters, depth], where a
 * filter's depth, over rows, columns and channels, is filled up with zeros to a multiple of four. The filters of a
 * group lie in twos, whose bytes alternate: of four elements, those with even numbers of both, then those with odd
 * ones. The last of an odd number lies alone. */
#ifndef DEEPLOY_ARM_CONV2D_H
#define DEEPLOY_ARM_CONV2D_H

#include "../portable/epilogue.h"

struct arm_conv2d {
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
    void *windows; /* four windows of 16 bits, and one of 8 where channels are no whole words; none up to 1024 bytes */
    struct epilogue epilogue;
};

#endif
