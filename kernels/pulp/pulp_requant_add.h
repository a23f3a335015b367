/* Sum of two operands of bytes, each requantised on its own, and its requantisation. */
#ifndef DEEPLOY_PULP_REQUANT_ADD_H
#define DEEPLOY_PULP_REQUANT_ADD_H

#include "pulp_epilogue.h"

/* clip((x*mul + add) >> shift, low, high), without a value beyond 32 bits */
struct pulp_scaled {
    int32_t mul, add;
    int shift;
    int32_t low, high;
};

struct pulp_requant_add {
    const void *a;
    const void *b;
    void *y;
    int extent[6], a_step[6], b_step[6], y_step[6]; /* steps are 0 where an operand is broadcast */
    struct pulp_scaled a_scale, b_scale;
    struct pulp_epilogue epilogue; /* the limits of y */
    struct pulp_requantisation requantisation;
};

#endif
