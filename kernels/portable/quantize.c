/* y = clip(round(x / scale) + zero_point, low, high), of floats, ties to even.
 *
 * x and y have any strides along six axes; scales and zero points may differ along them. An element is a load, a
 * division, two comparisons, two additions that round, a conversion and a store: the division bounds it.
 */
#include "quantize.h"

#include <math.h>

#include "loops.h"
#include "vectorised.h"

/* To the nearest integer, ties to the even one. Numbers within the limits of 8 or 16 bits are rounded by the addition
 * of one whose last digit is 1: rintf is a call where the processor has no instruction for it. */
static inline float nearest(float steps) {
    if (sizeof(Y_T) > 2) return rintf(steps);
    const float shifted = steps + 12582912.0f;
    return shifted - 12582912.0f;
}

static inline Y_T quantized(X_T x, SCALE_T scale, int32_t offset, int32_t low, int32_t high) {
    const float least = (float)(low - offset), most = (float)(high - offset), steps = x / scale;
    const float above = steps >= least ? steps : least; /* one comparison after the other, without a branch */
    return (Y_T)((int32_t)nearest(above > most ? most : above) + offset);
}

/* Elements that are neighbours and have one scale. */
VECTORISED void dense_row(const struct quantize *k, const X_T *restrict x, SCALE_T scale, int32_t offset,
                          Y_T *restrict y) {
    const int32_t low = k->low, high = k->high;
    const int count = k->extent[LAST];
    for (int i = 0; i < count; i++) y[i] = quantized(x[i], scale, offset, low, high);
}

void KERNEL(const struct quantize *k) {
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        const SCALE_T *const scale = (const SCALE_T *)k->scale + row_offset(index, k->scale_step);
        const ZERO_POINT_T *const zero = (const ZERO_POINT_T *)k->zero_point + row_offset(index, k->zero_point_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        if (k->x_step[LAST] == 1 && k->y_step[LAST] == 1 && k->scale_step[LAST] + k->zero_point_step[LAST] == 0) {
            dense_row(k, x, *scale, *zero, y);
            continue;
        }
        for (int i = 0; i < k->extent[LAST]; i++) {
            y[i * k->y_step[LAST]] = quantized(x[i * k->x_step[LAST]], scale[i * k->scale_step[LAST]],
                                               zero[i * k->zero_point_step[LAST]], k->low, k->high);
        }
    } while (next_row(index, k->extent));
}
