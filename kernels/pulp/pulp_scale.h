/* Requantisation of bytes, or of the sum or product of two operands of bytes, by one multiplier for all. */
#ifndef DEEPLOY_PULP_SCALE_H
#define DEEPLOY_PULP_SCALE_H

#include "pulp_epilogue.h"

struct pulp_scale {
    const void *a;
    const void *b; /* with OPERANDS 2 */
    void *y;
    int extent[6], a_step[6], b_step[6], y_step[6]; /* steps are 0 where an operand is broadcast */
    int a_zero_point, b_zero_point;                 /* of products */
    struct pulp_epilogue epilogue;                  /* the limits of y */
    struct pulp_requantisation requantisation;
};

#endif
