/* Sum of two operands, each requantised on its own; steps are 0 where one is broadcast. */
#ifndef DEEPLOY_REQUANT_ADD_H
#define DEEPLOY_REQUANT_ADD_H

#include <stdint.h>

#include "epilogue.h"

/* clip((x*mul + add) >> shift, low, high) */
struct requantised {
    int32_t mul;
    int64_t add;
    int shift;
    int32_t low, high;
};

struct requant_add {
    const void *a;
    const void *b;
    void *y;
    int extent[6], a_step[6], b_step[6], y_step[6]; /* the last axis of y is dense */
    struct requantised a_scale, b_scale;
    struct epilogue epilogue;
};

#endif
