/* One tile of a 3x3 convolution whose window moves by more than one pixel, on N-EUREKA, which moves it by one: what it
 * computes is subsampled by the cores. */
#ifndef NEUREKA_SUBSAMPLED_H
#define NEUREKA_SUBSAMPLED_H

#include <stdint.h>

#include "neureka.h"

struct neureka_subsampled {
    int accelerator, cores;
    struct neureka_layer layer;
    struct neureka_tile tile; /* y and its distances are those of what stays, height and width those of it, too */
    int32_t images, x_image, y_image; /* distances in bytes */
    int32_t rows;                     /* of x */
    int32_t stride_h, stride_w;
    int32_t pixel; /* bytes of an output */
    uint8_t *all;  /* twice `band` rows of all outputs */
    int32_t band;  /* a multiple of stride_h */
};

#endif
