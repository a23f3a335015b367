/* Sums of two operands of bytes, four at a time where they are dense. */
#include "../portable/scaled_sum.h"

#include "../portable/loops.h"
#include "helium.h"

/* So many sums of a row from the first on; how many are left. */
#if defined(__ARM_FEATURE_MVE)
static inline int sums(const struct scaled_sum *k, const int8_t *a, const int8_t *b, Y_T *y, int count) {
    const struct scaled_sum s = *k;
    for (; count >= LANES; count -= LANES, a += LANES, b += LANES, y += LANES) {
        const words left = vldrbq_s32(a), right = vldrbq_s32(b);
        words sum = vaddq_n_s32(vmlaq_n_s32(vmulq_n_s32(left, s.a_mul), right, s.b_mul), s.add);
#ifdef SUM_HALVES
        const words low = vaddq_n_s32(vmlaq_n_s32(vmulq_n_s32(left, s.a_low), right, s.b_low), s.add_low);
        sum = vaddq_s32(sum, vshrq_n_s32(low, 16));
#endif
        sum = vshlq_r_s32(sum, -s.shift);
        bytes_store(y, vminq_s32(vmaxq_s32(sum, vdupq_n_s32(s.low)), vdupq_n_s32(s.high)), LANES);
    }
    return count;
}
#else
static inline int sums(const struct scaled_sum *k, const int8_t *a, const int8_t *b, Y_T *y, int count) {
    for (int i = 0; i < (count & ~(LANES - 1)); i++) y[i] = sum_of(k, a[i], b[i]);
    return count & (LANES - 1);
}
#endif

void KERNEL(const struct scaled_sum *k) {
    const int a_step = k->a_step[LAST], b_step = k->b_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const int8_t *const a = (const int8_t *)k->a + row_offset(index, k->a_step);
        const int8_t *const b = (const int8_t *)k->b + row_offset(index, k->b_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        int left = k->extent[LAST];
        if (a_step == 1 && b_step == 1 && y_step == 1) left = sums(k, a, b, y, left);
        for (int i = k->extent[LAST] - left; i < k->extent[LAST]; i++)
            y[i * y_step] = sum_of(k, a[i * a_step], b[i * b_step]);
    } while (next_row(index, k->extent));
}
