/* Dense rows of bytes, divided by the root of their mean square, in fixed point (docs/integer-form.md); a call may be
 * for some columns of rows that are measured whole. */
#ifndef DEEPLOY_PULP_STANDARDISE_H
#define DEEPLOY_PULP_STANDARDISE_H

#include "pulp_epilogue.h"

struct pulp_standardise {
    const void *x; /* whole rows */
    void *y;
    int columns, first;                  /* of whole rows; the one that y begins with */
    int extent[6], x_step[6], y_step[6]; /* of y; the last axis is the row */
    int zero_point;                      /* of rows that keep their mean */
    int fraction;                        /* fractional bits of the result */
    int64_t epsilon;
    struct pulp_epilogue epilogue; /* its channel is the column */
    struct pulp_requantisation requantisation;
};

#endif
