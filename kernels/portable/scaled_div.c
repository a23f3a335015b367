/* y = clip(round((a - a_zero_point) * mul / ((b - b_zero_point) << shift)) + zero_point, low, high); halves are rounded
 * up.
 *
 * All operands have any strides along six axes. An element takes a product of 64 bits and a division of 32, which
 * bounds it.
 */
#include "scaled_div.h"

#include "loops.h"

enum { MOST = 1 << 24 }; /* of a numerator: any quotient by at most 511 is beyond all limits then */

/* floor((2n + d) / 2d) with n = a * mul and d = b << shift: a shift first, then a division of 32 bits. */
static inline int32_t divide(const struct scaled_div *k, int a, int b) {
    const int over = b < 0 ? -a : a, under = b < 0 ? -b : b;
    const int64_t n = over * k->mul;
    if (under == 0) return n > 0 ? k->high : k->low;
    const int64_t wide = (2 * n + under * ((int64_t)1 << k->shift)) >> (k->shift + 1);
    const int32_t top = (int32_t)(wide < -MOST ? -MOST : wide > MOST ? MOST : wide);
    return (top >= 0 ? top : top - under + 1) / under + k->zero_point;
}

void KERNEL(const struct scaled_div *k) {
    const int a_step = k->a_step[LAST], b_step = k->b_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const A_T *const a = (const A_T *)k->a + row_offset(index, k->a_step);
        const B_T *const b = (const B_T *)k->b + row_offset(index, k->b_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            const int32_t steps = divide(k, a[i * a_step] - k->a_zero_point, b[i * b_step] - k->b_zero_point);
            y[i * y_step] = (Y_T)(steps < k->low ? k->low : steps > k->high ? k->high : steps);
        }
    } while (next_row(index, k->extent));
}
