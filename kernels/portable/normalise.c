/* y = (x - mean) / sqrt(mean of squares + epsilon) * scale + offset, of rows of floats; the mean is taken off where it
 * is centred.
 *
 * x and y are rows with dense columns, any strides along five more axes; scale and offset have one entry per column. An
 * element is read two or three times, with 2 multiplications and 3 additions: sums whose additions wait for each other
 * bound it.
 */
#include "normalise.h"

#include <math.h>

#include "loops.h"

void KERNEL(const struct normalise *k) {
    const SCALE_T *const scale = (const SCALE_T *)k->scale;
    const float *const offset = (const float *)k->offset;
    const int columns = k->extent[LAST];
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        float mean = 0, squares = 0;
        if (k->centred) {
            for (int i = 0; i < columns; i++) mean += x[i];
            mean /= (float)columns;
        }
        for (int i = 0; i < columns; i++) squares += (x[i] - mean) * (x[i] - mean);
        const float factor = 1 / sqrtf(squares / (float)columns + k->epsilon);
        for (int i = 0; i < columns; i++) {
            const float value = (x[i] - mean) * factor * scale[i];
            y[i] = offset ? value + offset[i] : value;
        }
    } while (next_row(index, k->extent));
}
