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

/* Where the row begins, in elements. */
static inline int row_offset(const int index[AXES], const int step[AXES]) {
    int sum = 0;
    for (int axis = 0; axis < LAST; axis++) sum += index[axis] * step[axis];
    return sum;
}

#endif
