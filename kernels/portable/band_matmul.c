/* y[r, n] = the sum over i < length of x[r, first + i] * w[start + i].
 *
 * x is [rows, depth], y [rows, columns], w the runs one behind the other. A product is two loads, a multiplication and
 * an addition that waits for the one before it: additions bound it.
 */
#include "band_matmul.h"

void KERNEL(const struct band_matmul *k) {
    for (int row = 0; row < k->rows; row++) {
        for (int n = 0; n < k->columns; n++) {
            const int32_t *const span = k->spans + 3 * n;
            const float *const x = k->x + row * k->x_step + span[0], *const w = k->w + span[1];
            float sum = 0;
            for (int i = 0; i < span[2]; i++) sum += x[i] * w[i];
            k->y[row * k->y_step + n] = sum;
        }
    }
}
