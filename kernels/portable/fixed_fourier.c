/* The frequencies 0 to n/2 of rows of n real numbers of 16 bits, divided by n, a power of two.
 *
 * As real_fourier.c, in place in y. Pairs are halved as they are copied, and every butterfly halves and rounds once, so
 * that no number leaves 16 bits and no sum 32 bits: |pair| <= 2^14.5 throughout. Steps that take parts apart divide by
 * two as well. The factor of number 0 is 1, which is not multiplied by. n/4 log2(n/2) butterflies of four products
 * bound it: three loads and two stores of pairs each.
 */
#include "fixed_fourier.h"

#include "fixed_steps.h"

static void transform(int16_t *y, const int16_t *w, int pairs) {
    for (int size = 1; size < pairs; size *= 2) {
        for (int start = 0; start < pairs; start += 2 * size) {
            int16_t *a = y + 2 * start, *b = a + 2 * size;
            for (int part = 0; part < 2; part++) {
                const int32_t sum = a[part] + b[part], difference = a[part] - b[part];
                a[part] = half(sum);
                b[part] = half(difference);
            }
            const int16_t *turn = w;
            for (int i = 1; i < size; i++) {
                a += 2;
                b += 2;
                turn += 2 * (pairs / size);
                const int32_t re = b[0] * turn[0] - b[1] * turn[1], im = b[0] * turn[1] + b[1] * turn[0];
                const int32_t a_re = a[0] * 32768, a_im = a[1] * 32768;
                a[0] = upper(a_re + re);
                a[1] = upper(a_im + im);
                b[0] = upper(a_re - re);
                b[1] = upper(a_im - im);
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
