/* Loops over up to six axes with any strides; extents are filled with 1 at the front, the last axis is the inner loop.
 */
#ifndef DEEPLOY_LOOPS_H
#define DEEPLOY_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#define AXES 6
#define LAST (AXES - 1)

/* Step an odometer over all axes but the last; 0 when it wraps around. */
static inline int next_row(int index[AXES], const int extent[AXES]) {
    /*@ loop unroll AXES; */
    for (int axis = LAST - 1; axis >= 0; axis--) {
        if (++index[axis] < extent[axis]) return 1;
        index[axis] = 0;
    }
    return 0;
}

/* Where the row begins, in elements. */
static inline ptrdiff_t row_offset(const int index[AXES], const int step[AXES]) {
    ptrdiff_t sum = 0;
    /*@ loop unroll AXES; */
    for (int axis = 0; axis < LAST; axis++) sum += (ptrdiff_t)index[axis] * step[axis];
    return sum;
}

#endif
