#include "scaled_div.h"

#include "loops.h"

static inline int64_t divide(const struct scaled_div *k, int a, int b) {
    int64_t n = (int64_t)(a - k->a_zero_point) * k->mul, d = (int64_t)(b - k->b_zero_point) * ((int64_t)1 << k->shift);
    if (d == 0) return n > 0 ? k->high : n < 0 ? k->low : k->zero_point;
    if (d < 0) {
        n = -n;
        d = -d;
    }
    const int64_t top = 2 * n + d, whole = 2 * d;
    return (top >= 0 ? top / whole : -((whole - 1 - top) / whole)) + k->zero_point;
}

void KERNEL(const struct scaled_div *k) {
    int index[AXES] = {0};
    do {
        const A_T *const a = (const A_T *)k->a + row_offset(index, k->a_step);
        const B_T *const b = (const B_T *)k->b + row_offset(index, k->b_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            const int64_t wide = divide(k, a[i * k->a_step[LAST]], b[i * k->b_step[LAST]]);
            y[i * k->y_step[LAST]] = (Y_T)(wide < k->low ? k->low : wide > k->high ? k->high : wide);
        }
    } while (next_row(index, k->extent));
}
