/* Sum, product, mean, maximum or minimum over any axes. */
#ifndef DEEPLOY_REDUCE_H
#define DEEPLOY_REDUCE_H

#include "epilogue.h"

enum reduce_operation {
    REDUCE_SUM,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_PRODUCT,
    REDUCE_MEAN,         /* float: sum / count */
    REDUCE_INTEGER_MEAN, /* (sum + sgn(sum) * (count >> 1)) / count, towards zero */
    REDUCE_SHIFT_MEAN    /* count = 2^n: (sum + 2^(n-1)) >> n */
};

/* Kept and reduced axes, outermost first, filled up with extents of 1; strides are in elements. */
struct reduce {
    const void *x;
    void *y;
    enum reduce_operation operation;
    int kept[6], x_kept[6], y_kept[6];
    int reduced[6], x_reduced[6];
    struct epilogue epilogue; /* its channel is the index along the last kept axis */
};

#endif
