/* y = clip((add + a*a_mul + b*b_mul) >> shift, low, high), in 32 bits; with SUM_HALVES factors have 16 further bits
 * below these.
 *
 * All operands have any strides along six axes. An element is two loads, two multiplications and additions, a shift,
 * two comparisons and a store, in vectors where there are any: instructions bound it.
 */
#include "scaled_sum.h"

#include "loops.h"

void KERNEL(const struct scaled_sum *given) {
    const struct scaled_sum k = *given; /* which no output is part of */
    const int a_step = k.a_step[LAST], b_step = k.b_step[LAST], y_step = k.y_step[LAST], count = k.extent[LAST];
    int index[AXES] = {0};
    do {
        const A_T *const a = (const A_T *)k.a + row_offset(index, k.a_step);
        const B_T *const b = (const B_T *)k.b + row_offset(index, k.b_step);
        Y_T *const y = (Y_T *)k.y + row_offset(index, k.y_step);
        if (a_step == 1 && b_step == 1 && y_step == 1) {
            for (int i = 0; i < count; i++) y[i] = sum_of(&k, a[i], b[i]);
        } else {
            for (int i = 0; i < count; i++) y[i * y_step] = sum_of(&k, a[i * a_step], b[i * b_step]);
        }
    } while (next_row(index, k.extent));
}
