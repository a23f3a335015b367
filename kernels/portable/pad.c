/* y = x with what is around it: a constant, its edges, or its reflection.
 *
 * x and y have any strides along six axes. An element is some comparisons for its index, a load and a store:
 * instructions bound it.
 */
#include "pad.h"

#include "kernel_instance.h"
#include "loops.h"

/* The index of x that position `at` (relative to x's first element) reads, or -1 for the constant. */
static inline int source(enum pad_mode mode, int at, int size) {
    if (at >= 0 && at < size) return at;
    if (mode == PAD_CONSTANT) return -1;
    if (mode == PAD_EDGE) return at < 0 ? 0 : size - 1;
    return at < 0 ? -at : 2 * (size - 1) - at;
}

void KERNEL(const struct pad *k) {
    const X_T value = IS_FLOAT ? (X_T)k->value_f : (X_T)k->value;
    int index[AXES] = {0};
    do {
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        ptrdiff_t row = 0;
        int inside = 1;
        for (int axis = 0; axis < LAST; axis++) {
            const int at = source(k->mode, index[axis] - k->before[axis], k->x_extent[axis]);
            inside = inside && at >= 0;
            row += (ptrdiff_t)at * k->x_step[axis];
        }
        for (int i = 0; i < k->extent[LAST]; i++) {
            const int at = inside ? source(k->mode, i - k->before[LAST], k->x_extent[LAST]) : -1;
            y[i * k->y_step[LAST]] = at < 0 ? value : ((const X_T *)k->x)[row + (ptrdiff_t)at * k->x_step[LAST]];
        }
    } while (next_row(index, k->extent));
}
