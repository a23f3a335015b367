/* Loops over up to six axes with any strides; extents are filled with 1 at the front, the last axis is a row. */
#ifndef DEEPLOY_PULP_ROWS_H
#define DEEPLOY_PULP_ROWS_H

#include "xpulp.h"

enum { AXES = 6, LAST = AXES - 1 };

/* Step an odometer over all axes but the last, and by it the places *a, *b and *c in elements where rows of up to three
 * operands begin (null: there is none); 0 when it wraps around. */
static inline int next_rows(int index[AXES], const int extent[AXES], const int *a_step, int *a, const int *b_step,
                            int *b, const int *c_step, int *c) {
    int axis = LAST - 1;
    XP_UNKNOWN(axis);
    for (; axis >= 0; axis--) {
        if (extent[axis] == 1) continue;
        const int is_last = ++index[axis] == extent[axis], steps = is_last ? 1 - extent[axis] : 1;
        *a += steps * a_step[axis], *b += steps * b_step[axis];
        if (c) *c += steps * c_step[axis];
        if (!is_last) return 1;
        index[axis] = 0;
    }
    return 0;
}

#endif
