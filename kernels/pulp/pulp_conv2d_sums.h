/* The convolution of some of the channels of one image with as many of its filters, added to sums: see pulp_conv2d.h,
 * whose y are the sums, and pulp_sums.h. */
#ifndef DEEPLOY_PULP_CONV2D_SUMS_H
#define DEEPLOY_PULP_CONV2D_SUMS_H

#include "pulp_conv2d.h"
#include "pulp_sums.h"

struct pulp_conv2d_sums {
    struct pulp_conv2d part;
    struct pulp_sums kept;
};

#endif
