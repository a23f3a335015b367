/* The frequencies 0 to n/2 of rows of n real numbers, n a power of two.
 *
 * Pairs of elements are complex numbers, whose transform of half the length is made in place in y: n/4 log2(n/2)
 * butterflies of four multiplications and six additions each, and n/4 steps that take its even and odd parts apart.
 * Loads and stores of four numbers per butterfly bound it where registers do not hold them.
 */
#include "real_fourier.h"

/* Copies pairs in the order of their reversed numbers. */
static void reorder(const float *x, float *y, int half) {
    for (int i = 0, j = 0; i < half; i++) {
        y[2 * j] = x[2 * i];
        y[2 * j + 1] = x[2 * i + 1];
        int bit = half >> 1;
        for (; bit && (j & bit); bit >>= 1) j ^= bit;
        j |= bit;
    }
}

static void transform(float *y, const float *w, int half) {
    for (int size = 1; size < half; size *= 2) {
        const int step = half / size;
        for (int start = 0; start < half; start += 2 * size) {
            for (int i = 0; i < size; i++) {
                float *const a = y + 2 * (start + i), *const b = a + 2 * size;
                const float *const turn = w + 2 * i * step;
                const float re = b[0] * turn[0] - b[1] * turn[1], im = b[0] * turn[1] + b[1] * turn[0];
                b[0] = a[0] - re;
                b[1] = a[1] - im;
                a[0] += re;
                a[1] += im;
            }
        }
    }
}

static void take_apart(float *y, const float *w, int half) {
    const float first = y[0], second = y[1];
    y[0] = first + second;
    y[1] = 0;
    y[2 * half] = first - second;
    y[2 * half + 1] = 0;
    for (int k = 1; k <= half / 2; k++) {
        float *const a = y + 2 * k, *const b = y + 2 * (half - k);
        const float *const turn = w + 2 * k;
        const float odd[2] = {(a[1] + b[1]) * 0.5f, (b[0] - a[0]) * 0.5f};
        const float even[2] = {(a[0] + b[0]) * 0.5f, (a[1] - b[1]) * 0.5f};
        const float re = odd[0] * turn[0] - odd[1] * turn[1], im = odd[0] * turn[1] + odd[1] * turn[0];
        a[0] = even[0] + re;
        a[1] = even[1] + im;
        b[0] = even[0] - re;
        b[1] = im - even[1];
    }
}

void KERNEL(const struct real_fourier *k) {
    for (int row = 0; row < k->rows; row++) {
        float *const y = k->y + row * k->y_step;
        reorder(k->x + row * k->x_step, y, k->points / 2);
        transform(y, k->w, k->points / 2);
        take_apart(y, k->w, k->points / 2);
    }
}
