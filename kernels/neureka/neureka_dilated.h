/* One tile of a 3x3 convolution with dilation, on N-EUREKA: every DILATION-th row and column of the image by itself, of
 * which it is a convolution without. */
#ifndef NEUREKA_DILATED_H
#define NEUREKA_DILATED_H

#include <stdint.h>

#include "neureka.h"

struct neureka_dilated {
    int accelerator;
    struct neureka_layer layer;
    struct neureka_tile tile; /* of the first image; top and left are the rows and columns read before the first of x */
    int32_t images, x_image, y_image; /* distances in bytes */
    int32_t rows, columns;            /* of x */
};

#endif
