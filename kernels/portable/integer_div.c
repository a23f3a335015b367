/* y = (a + b / 2) / b, of whole numbers, towards zero.
 *
 * All operands have any strides along six axes. An element takes a division of 64 bits, which bounds it.
 */
#include "integer_div.h"

#include "loops.h"

/* Half of the divisor is added with the dividend's sign, then the quotient is taken towards zero; a divisor of 0 gives
 * 0. */
static inline int64_t divide(int64_t n, int64_t d) {
    if (d == 0) return 0;
    return (n < 0 ? n - (d >> 1) : n + (d >> 1)) / d;
}

void KERNEL(const struct integer_div *k) {
    const int a_step = k->a_step[LAST], b_step = k->b_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const A_T *const a = (const A_T *)k->a + row_offset(index, k->a_step);
        const B_T *const b = (const B_T *)k->b + row_offset(index, k->b_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++)
            y[i * y_step] = (Y_T)divide(a[i * a_step] * k->factor, b[i * b_step] * k->scale + k->offset);
    } while (next_row(index, k->extent));
}
