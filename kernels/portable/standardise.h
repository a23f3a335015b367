/* Dense rows of 8-bit values, divided by the root of their mean square, in fixed point; see docs/integer-form.md. */
#ifndef DEEPLOY_STANDARDISE_H
#define DEEPLOY_STANDARDISE_H

#include <stdint.h>

#include "epilogue.h"

struct standardise {
    const void *x;
    void *y;
    int extent[6], x_step[6], y_step[6]; /* the last axis is the row */
    int zero_point;                      /* of rows that keep their mean */
    int fraction;                        /* fractional bits of the result */
    int64_t epsilon;
    struct epilogue epilogue; /* its channel is the column */
};

#endif
