/* y = epilogue(a' + b'), where a' = clip((a*a_mul + a_add) >> a_shift, a_low, a_high) and b' is the same of b.
 *
 * All operands have any strides along six axes. An element is two loads, for each a multiplication, addition, shift and
 * two comparisons, and the epilogue: instructions bound it.
 */
#include "requant_add.h"

#include "loops.h"

#define BLOCK 64

/* An instance defines WIDE_T, which holds every product and its summand. */
static inline int32_t scaled(WIDE_T x, struct requantised r) {
    const WIDE_T value = (x * (WIDE_T)r.mul + (WIDE_T)r.add) >> r.shift;
    const WIDE_T least = value < r.low ? r.low : value;
    return (int32_t)(least > r.high ? r.high : least);
}

void KERNEL(const struct requant_add *k) {
    const struct requantised a_scale = k->a_scale, b_scale = k->b_scale;
    const int a_step = k->a_step[LAST], b_step = k->b_step[LAST];
    int index[AXES] = {0};
    do {
        const A_T *const a = (const A_T *)k->a + row_offset(index, k->a_step);
        const B_T *const b = (const B_T *)k->b + row_offset(index, k->b_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int first = 0; first < k->extent[LAST]; first += BLOCK) {
            const int count = k->extent[LAST] - first < BLOCK ? k->extent[LAST] - first : BLOCK;
            /*@ split count; */
            ACC_T acc[BLOCK];
            /*@ loop unroll BLOCK; */
            for (int i = 0; i < count; i++) {
                acc[i] = scaled(a[(first + i) * a_step], a_scale) + scaled(b[(first + i) * b_step], b_scale);
            }
            finish_row(acc, y + first, &k->epilogue, first, count);
        }
    } while (next_row(index, k->extent));
}
