/* One tile of any convolution of one group, on N-EUREKA and the cores around it: the cores gather what every output
 * sees, one window after the other, of which the engine computes a product of matrices. */
#ifndef NEUREKA_WINDOWS_H
#define NEUREKA_WINDOWS_H

#include <stdint.h>

#include "neureka.h"

struct neureka_windows {
    int accelerator, cores;
    struct neureka_layer layer;
    struct neureka_tile tile; /* of the first window; y is that of the first output, x is not looked at */
    const void *x;
    int32_t images, height, width, channels; /* of x */
    int32_t out_height, out_width;           /* outputs lie equally far apart */
    int32_t kernel_h, kernel_w;
    int32_t stride_h, stride_w;
    int32_t dilation_h, dilation_w;
    int32_t top, left;                         /* rows and columns before the first one of x */
    int32_t x_image, x_row, x_column, y_image; /* distances in bytes */
    uint8_t *windows;                          /* twice `band` times `pitch` bytes */
    int32_t band, pitch;                       /* windows that are gathered together, bytes from one to the next */
};

#endif
