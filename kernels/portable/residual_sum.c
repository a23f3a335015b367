/* y = clip((clip(((the sum over i of x[i])*mul + add) >> shift) * a_mul + b*b_mul + offset) >> result_shift).
 *
 * x is [terms, ...], all have any strides along six axes of results. A term is a load and an addition; a result two
 * products and sums of 64 bits, shifts and limits: instructions bound it.
 */
#include "residual_sum.h"

#include "loops.h"

static inline int32_t ranged(int64_t sum, const struct residual_range *r) {
    int64_t wide = sum >> r->shift;
    if (r->even >= 0) wide -= (wide * ((int64_t)1 << r->shift) == sum) & (wide - r->even) & 1;
    wide = wide < r->low ? r->low : wide;
    return (int32_t)(wide > r->high ? r->high : wide);
}

void KERNEL(const struct residual_sum *k) {
    const MUL_T *const mul = (const MUL_T *)k->mul;
    const ADD_T *const add = (const ADD_T *)k->add;
    const struct residual_range sum = k->sum, result = k->result;
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        const B_T *const b = (const B_T *)k->b + row_offset(index, k->b_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            ACC_T acc = 0;
            for (int term = 0; term < k->terms; term++) acc += x[term * k->x_term + i * k->x_step[LAST]];
            const int64_t t = ranged((int64_t)acc * mul[i * k->mul_step] + add[i * k->add_step], &sum);
            const int64_t both = t * k->mul_a + b[i * k->b_step[LAST]] * k->mul_b + k->offset;
            y[i * k->y_step[LAST]] = (Y_T)ranged(both, &result);
        }
    } while (next_row(index, k->extent));
}
