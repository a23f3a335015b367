#include "quantize.h"

#include <math.h>

#include "loops.h"

/* To the nearest integer, ties to the even one. Numbers within the limits of 8 or 16 bits are rounded by the addition
 * of one whose last digit is 1: rintf is a call where the processor has no instruction for it. */
static inline float nearest(float steps) {
    if (sizeof(Y_T) > 2) return rintf(steps);
    const float shifted = steps + 12582912.0f;
    return shifted - 12582912.0f;
}

void KERNEL(const struct quantize *k) {
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        const SCALE_T *const scale = (const SCALE_T *)k->scale + row_offset(index, k->scale_step);
        const ZERO_POINT_T *const zero = (const ZERO_POINT_T *)k->zero_point + row_offset(index, k->zero_point_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            const int32_t offset = zero[i * k->zero_point_step[LAST]];
            const float low = (float)(k->low - offset), high = (float)(k->high - offset);
            const float steps = x[i * k->x_step[LAST]] / scale[i * k->scale_step[LAST]];
            y[i * k->y_step[LAST]] = (Y_T)((int32_t)nearest(steps > high ? high : steps >= low ? steps : low) + offset);
        }
    } while (next_row(index, k->extent));
}
