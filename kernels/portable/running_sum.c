/* y[i] = the sum of x up to i along an axis, or before it.
 *
 * x and y are [outer, count, width] with any strides. An element is two loads, an addition and a store, which bound it.
 */
#include "running_sum.h"

#include <stddef.h>
#include <stdint.h>

/* Integers wrap around. */
#define whole(a, b) ((Y_T)((uint64_t)(a) + (uint64_t)(b)))
#define real(a, b) ((a) + (b))

void KERNEL(const struct running_sum *k) {
    const int count = k->extent[1], width = k->extent[2];
    for (int outer = 0; outer < k->extent[0]; outer++) {
        for (int step = 0; step < count; step++) {
            const int at = k->reverse ? count - 1 - step : step;
            const int before = k->reverse ? at + 1 : at - 1;
            const X_T *const rows = (const X_T *)k->x + (ptrdiff_t)outer * k->x_step[0];
            const X_T *const x = rows + (ptrdiff_t)(k->exclusive && step ? before : at) * k->x_step[1];
            Y_T *const sums = (Y_T *)k->y + (ptrdiff_t)outer * k->y_step[0];
            Y_T *const y = sums + (ptrdiff_t)at * k->y_step[1];
            if (!step) {
                for (int i = 0; i < width; i++) y[i] = k->exclusive ? 0 : x[i];
                continue;
            }
            const Y_T *const last = sums + (ptrdiff_t)before * k->y_step[1];
            for (int i = 0; i < width; i++) y[i] = SUM(last[i], x[i]);
        }
    }
}
