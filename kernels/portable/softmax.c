#include "softmax.h"

#include <math.h>
#include "loops.h"

void KERNEL(const struct softmax *k) {
    const int columns = k->extent[LAST];
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        X_T max = x[0];
        for (int i = 1; i < columns; i++) max = x[i] > max ? x[i] : max;
#ifdef ACC_IS_FLOAT
        float sum = 0;
        for (int i = 0; i < columns; i++) {
            y[i] = expf(x[i] - max);
            sum += y[i];
        }
        for (int i = 0; i < columns; i++) y[i] /= sum;
#else
        uint32_t sum = 0;
        for (int i = 0; i < columns; i++) sum += k->table[max - x[i]];
        for (int i = 0; i < columns; i++) {
            const uint64_t e = k->table[max - x[i]];
            const int64_t value = (int64_t)((2 * e * (uint64_t)k->levels + sum) / (2 * (uint64_t)sum)) + k->zero_point;
            y[i] = (Y_T)(value < k->low ? k->low : value > k->high ? k->high : value);
        }
#endif
    } while (next_row(index, k->extent));
}
