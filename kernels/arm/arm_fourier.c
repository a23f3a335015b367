/* As portable/fixed_fourier.c, with butterflies of words that hold a complex number each: SMUSD and SMUADX multiply two
 * of them. Three loads, two products, eight additions and two stores bound it. */
#include "arm_simd.h"

#include "../portable/fixed_fourier.h"
#include "../portable/fixed_steps.h"

static inline void store(int16_t *pair, uint32_t word) {
    memcpy(pair, &word, sizeof word);
}

static void transform(int16_t *y, const int16_t *w, int pairs) {
    for (int size = 1; size < pairs; size *= 2) {
        for (int start = 0; start < pairs; start += 2 * size) {
            int16_t *a = y + 2 * start, *b = a + 2 * size;
            const uint32_t first = arm_word(a), second = arm_word(b);
            store(a, arm_halve_sums(first, second));
            store(b, arm_halve_differences(first, second));
            const int16_t *turn = w;
            for (int i = 1; i < size; i++) {
                a += 2;
                b += 2;
                turn += 2 * (pairs / size);
                const uint32_t word = arm_word(a), other = arm_word(b), factor = arm_word(turn);
                const int32_t re = arm_multiply_real(other, factor), im = arm_multiply_imaginary(other, factor);
                const int32_t a_re = (int16_t)word * 32768 + HALF_STEP,
                              a_im = (int16_t)(word >> 16) * 32768 + HALF_STEP;
                store(a, arm_pack_upper(a_re + re, a_im + im));
                store(b, arm_pack_upper(a_re - re, a_im - im));
            }
        }
    }
}

void KERNEL(const struct fixed_fourier *k) {
    for (int row = 0; row < k->rows; row++) {
        int16_t *const y = k->y + row * k->y_step;
        reorder(k->x + row * k->x_step, y, k->points / 2);
        transform(y, k->w, k->points / 2);
        take_apart(y, k->w, k->points / 2);
    }
}
