/* Sum, mean, maximum or minimum of bytes over any axes. */
#ifndef DEEPLOY_PULP_REDUCE_H
#define DEEPLOY_PULP_REDUCE_H

#include "pulp_epilogue.h"

/* Kept and reduced axes, outermost first, filled up with extents of 1; strides are in elements. */
struct pulp_reduce {
    const void *x;
    void *y;
    int kept[6], x_kept[6], y_kept[6];
    int reduced[6], x_reduced[6];
    int count;        /* elements that become one, of all reduced axes */
    int shift;        /* of a mean: count is 2^shift, or shift is -1 */
    int channel_step; /* 1: the index along the last kept axis is the epilogue's channel; 0: there is one for all */
    struct pulp_epilogue epilogue;
    struct pulp_requantisation requantisation;
};

#endif
