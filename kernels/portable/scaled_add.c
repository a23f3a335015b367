/* y = clip((a*mul_a + b*mul_b + add) >> shift, low, high), in 64 bits; ties go to even where it is asked.
 *
 * All operands have any strides along six axes. An element is two loads, two products and sums of 64 bits, a shift, two
 * comparisons and a store: instructions bound it.
 */
#include "scaled_add.h"

#include "loops.h"

void KERNEL(const struct scaled_add *k) {
    const int64_t mul_a = k->mul_a, mul_b = k->mul_b, add = k->add;
    const int32_t low = k->low, high = k->high;
    const int even = k->even;
    const int shift = k->shift, a_step = k->a_step[LAST], b_step = k->b_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const A_T *const a = (const A_T *)k->a + row_offset(index, k->a_step);
        const B_T *const b = (const B_T *)k->b + row_offset(index, k->b_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            const int64_t sum = a[i * a_step] * mul_a + b[i * b_step] * mul_b + add;
            int64_t wide = sum >> shift;
            if (even >= 0) wide -= (wide * ((int64_t)1 << shift) == sum) & (wide - even) & 1;
            wide = wide < low ? low : wide;
            y[i * y_step] = (Y_T)(wide > high ? high : wide);
        }
    } while (next_row(index, k->extent));
}
