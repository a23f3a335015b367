/* One tile of a convolution of one group whose input has few channels, on N-EUREKA and the cores around it.
 *
 * For every row of outputs the cores gather a patch: column after column, the pixels of all rows that its windows see.
 * A window is a run in it, and neighbouring windows overlap; the engine computes a product of matrices. */
#ifndef NEUREKA_PATCHES_H
#define NEUREKA_PATCHES_H

#include <stdint.h>

#include "neureka.h"

struct neureka_patches {
    int accelerator, cores;
    struct neureka_layer layer;
    struct neureka_tile tile; /* of all windows; x is not looked at */
    const void *x;
    int32_t images, height, width, channels; /* of x */
    int32_t kernel_h, dilation_h, stride_h;
    int32_t top, left;               /* rows and columns before the first one of x */
    int32_t columns;                 /* of a patch */
    int32_t x_image, x_row, y_image; /* distances in bytes */
    uint8_t *patches;                /* twice `band` patches */
    int32_t band;
};

#endif
