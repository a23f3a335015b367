/* Convolution of a channels-last image with weights in any order, which may be computed by the network. */
#ifndef DEEPLOY_CONV2D_ANY_H
#define DEEPLOY_CONV2D_ANY_H

#include "conv2d.h"

struct conv2d_any {
    struct conv2d conv;
    int w_filter, w_channel, w_row, w_column; /* strides in elements */
};

#endif
