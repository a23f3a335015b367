/* y = exp(x - max) * (1 / sum of exp(x - max)), of rows of floats.
 *
 * x and y are rows with dense columns, any strides along five more axes. An element takes an exponential, which
 * bounds it.
 */
#include "softmax.h"

#include "exponentials.h"
#include "loops.h"

void KERNEL(const struct softmax *k) {
    const int columns = k->extent[LAST];
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        X_T max = x[0];
        for (int i = 1; i < columns; i++) max = x[i] > max ? x[i] : max;
        float sum = 0;
        for (int i = 0; i < columns; i++) {
            y[i] = exp_float(x[i] - max);
            sum += y[i];
        }
        const float factor = 1 / sum;
        for (int i = 0; i < columns; i++) y[i] *= factor;
    } while (next_row(index, k->extent));
}
