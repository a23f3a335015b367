/* y = clip(round((a - a_zero_point) * factor / (b - b_zero_point)) + zero_point, low, high), of bytes; halves are
 * rounded up.
 *
 * All operands have any strides along six axes. An element takes one division of 35 cycles, which bounds it, and some
 * 20 instructions.
 */
#include "pulp_scaled_div.h"

#include "pulp_rows.h"
#include "xpulp.h"

/* floor((2n + d) / 2d): halves of a denominator first, then a division of 32 bits. */
static inline int32_t divide(const struct pulp_scaled_div *k, int a, int b) {
    const int over = b < 0 ? -a : a, under = b < 0 ? -b : b;
    const int32_t twice = xp_mulh((int32_t)((uint32_t)over << k->left), k->mul) >> k->right;
    if (under == 0) return k->mul == 0 || over <= 0 ? k->low : k->high;
    const int32_t top = (twice + under) >> 1;
    return (top >= 0 ? top : top - under + 1) / under + k->zero_point;
}

void KERNEL(const struct pulp_scaled_div *k) {
    const int count = k->extent[LAST], a_step = k->a_step[LAST], b_step = k->b_step[LAST], y_step = k->y_step[LAST];
    /* Copied: what lies in memory would be read again after every store to y. */
    const struct pulp_scaled_div all = *k;
    int index[AXES] = {0}, a_at = 0, b_at = 0, y_at = 0;
    do {
        const A_T *a = (const A_T *)all.a + a_at;
        const B_T *b = (const B_T *)all.b + b_at;
        Y_T *y = (Y_T *)all.y + y_at;
        for (int i = count; i > 0; i--, a += a_step, b += b_step, y += y_step) {
            const int32_t steps = divide(&all, *a - all.a_zero_point, *b - all.b_zero_point);
            *y = (Y_T)xp_max(all.low, xp_min(all.high, steps));
        }
    } while (next_rows(index, k->extent, k->a_step, &a_at, k->b_step, &b_at, k->y_step, &y_at));
}
