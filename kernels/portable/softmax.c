#include "softmax.h"

#include <math.h>
#include <stddef.h>

void KERNEL(const struct softmax *k) {
    for (int row = 0; row < k->rows; row++) {
        const X_T *const x = (const X_T *)k->x + (ptrdiff_t)row * k->columns;
        Y_T *const y = (Y_T *)k->y + (ptrdiff_t)row * k->columns;
        X_T max = x[0];
        for (int i = 1; i < k->columns; i++) max = x[i] > max ? x[i] : max;
#ifdef ACC_IS_FLOAT
        float sum = 0;
        for (int i = 0; i < k->columns; i++) {
            y[i] = expf(x[i] - max);
            sum += y[i];
        }
        for (int i = 0; i < k->columns; i++) y[i] /= sum;
#else
        uint32_t sum = 0;
        for (int i = 0; i < k->columns; i++) sum += k->table[max - x[i]];
        for (int i = 0; i < k->columns; i++) {
            const uint64_t e = k->table[max - x[i]];
            const int64_t value = (int64_t)((2 * e * (uint64_t)k->levels + sum) / (2 * (uint64_t)sum)) + k->zero_point;
            y[i] = (Y_T)(value < k->low ? k->low : value > k->high ? k->high : value);
        }
#endif
    }
}
