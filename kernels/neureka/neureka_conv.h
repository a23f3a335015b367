/* One tile of a convolution, or of a product of matrices, on N-EUREKA, when its size is known only when the code runs.
 */
#ifndef NEUREKA_CONV_H
#define NEUREKA_CONV_H

#include <stdint.h>

#include "neureka.h"

struct neureka_conv {
    int accelerator;
    struct neureka_layer layer;
    struct neureka_tile tile; /* of the first image */
    int32_t images;
    int32_t x_image, y_image; /* distances of images in bytes */
    int is_linear;            /* pixels lie equally far apart everywhere, in x and in y: any shape of image will do */
};

#endif
