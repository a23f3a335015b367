/* Sum, mean, maximum or minimum over any axes. */
#ifndef DEEPLOY_REDUCE_H
#define DEEPLOY_REDUCE_H

#include "epilogue.h"

enum reduce_operation {
    REDUCE_SUM,
    REDUCE_MEAN,         /* float */
    REDUCE_INTEGER_MEAN, /* sum / count, truncated after adding half of the count away from zero */
    REDUCE_SHIFT_MEAN,   /* (sum + count / 2) >> log2(count) */
    REDUCE_MAX,
    REDUCE_MIN
};

/* Axes are filled up to six with extents of 1, innermost last; strides are in elements. The last kept axis is dense in y. */
struct reduce {
    const void *x;
    void *y;
    enum reduce_operation operation;
    int kept[6], x_kept[6], y_kept[6];
    int reduced[6], x_reduced[6];
    struct epilogue epilogue;
};

#endif
