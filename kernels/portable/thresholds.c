/* y = how many thresholds of its channel x reaches.
 *
 * x and y are [outer, channels, inner] with any strides, thresholds [channels, count]. An element is a binary search,
 * log2(count) loads and comparisons: branches bound it.
 */
#include "thresholds.h"

#include <stddef.h>
#include <stdint.h>

void KERNEL(const struct thresholds *k) {
    for (int outer = 0; outer < k->extent[0]; outer++) {
        for (int channel = 0; channel < k->extent[1]; channel++) {
            const T_T *const thresholds = (const T_T *)k->t + (ptrdiff_t)channel * k->t_step;
            const X_T *const x =
                (const X_T *)k->x + (ptrdiff_t)outer * k->x_step[0] + (ptrdiff_t)channel * k->x_step[1];
            Y_T *const y = (Y_T *)k->y + (ptrdiff_t)outer * k->y_step[0] + (ptrdiff_t)channel * k->y_step[1];
            for (int i = 0; i < k->extent[2]; i++) {
                int reached = 0;
                for (int left = k->count; left > 0;) { /* a binary search */
                    const int half = left / 2;
                    if (x[i] >= thresholds[reached + half]) {
                        reached += half + 1;
                        left -= half + 1;
                    } else {
                        left = half;
                    }
                }
                y[i] = (Y_T)reached;
            }
        }
    }
}
