/* Loops over up to six axes with any strides; extents are filled with 1 at the front, the last axis is a row. */
#ifndef DEEPLOY_PULP_ROWS_H
#define DEEPLOY_PULP_ROWS_H

#include "xpulp.h"

enum { AXES = 6, LAST = AXES - 1 };

/* Step an odometer over all axes but the last; 0 when it wraps around. */
static inline int next_row(int index[AXES], const int extent[AXES]) {
    int axis = LAST - 1;
    XP_UNKNOWN(axis);
    for (; axis >= 0; axis--) {
        if (++index[axis] < extent[axis]) return 1;
        index[axis] = 0;
    }
    return 0;
}

/* The same for two operands whose rows begin at *a and *b, which it steps, too. */
static inline int next_rows(int index[AXES], const int extent[AXES], const int a_step[AXES], int *a,
                            const int b_step[AXES], int *b) {
    int axis = LAST - 1;
    XP_UNKNOWN(axis);
    for (; axis >= 0; axis--) {
        if (extent[axis] == 1) continue;
        const int is_last = ++index[axis] == extent[axis], steps = is_last ? 1 - extent[axis] : 1;
        *a += steps * a_step[axis], *b += steps * b_step[axis];
        if (!is_last) return 1;
        index[axis] = 0;
    }
    return 0;
}

/* Where the row begins, in elements. */
static inline int row_offset(const int index[AXES], const int step[AXES]) {
    int sum = 0;
    for (int axis = 0; axis < LAST; axis++) sum += index[axis] * step[axis];
    return sum;
}

#endif
