/* y = clip((x * mul + add) >> shift, low, high).
 *
 * All operands have any strides along six axes; mul and add may differ along them. An element is three loads, a product
 * and sum of 64 bits, a shift, two comparisons and a store: instructions bound it.
 */
#include "requant_shift.h"

#include "loops.h"

void KERNEL(const struct requant_shift *k) {
    const int32_t low = k->low, high = k->high;
    const int shift = k->shift, x_step = k->x_step[LAST], mul_step = k->mul_step[LAST], add_step = k->add_step[LAST],
              y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        const MUL_T *const mul = (const MUL_T *)k->mul + row_offset(index, k->mul_step);
        const ADD_T *const add = (const ADD_T *)k->add + row_offset(index, k->add_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            const int64_t wide = ((int64_t)x[i * x_step] * mul[i * mul_step] + add[i * add_step]) >> shift;
            const int64_t least = wide < low ? low : wide;
            y[i * y_step] = (Y_T)(least > high ? high : least);
        }
    } while (next_row(index, k->extent));
}
