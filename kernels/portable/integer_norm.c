/* y = clip((x * weight / deviation) >> shift), or CENTRED ((x - mean) * weight / deviation + bias) >> shift, in whole
 * numbers: the deviation is the root of the mean of squares and one.
 *
 * x and y are rows with dense columns, any strides along five more axes; weight and bias have one entry per column. An
 * element is read two or three times and takes a division, which bounds it.
 */
#include "integer_norm.h"

#include "kernel_instance.h"
#include "loops.h"
#include "roots.h"

/* An instance defines SQUARES_T, which holds a row's sum of squares, PRODUCT_T, which holds element times weight plus
 * bias, and CENTRED where the mean is taken off. Divisions are towards zero. */

void KERNEL(const struct integer_norm *k) {
    const WEIGHT_T *const weight = (const WEIGHT_T *)k->weight;
    const BIAS_T *const bias = CENTRED ? (const BIAS_T *)k->bias : 0;
    const int columns = k->extent[LAST], shift = k->shift;
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        int32_t mean = 0;
        if (CENTRED) {
            SQUARES_T total = 0;
            for (int i = 0; i < columns; i++) total += x[i];
            mean = (int32_t)(total / columns);
        }
        SQUARES_T squares = 0;
        for (int i = 0; i < columns; i++) {
            const SQUARES_T distance = (SQUARES_T)x[i] - mean;
            squares += distance * distance;
        }
        const int32_t deviation = (int32_t)integer_root((uint64_t)(squares / columns) + 1);
        for (int i = 0; i < columns; i++) {
            const PRODUCT_T product = (PRODUCT_T)(x[i] - mean) * weight[i] / deviation;
            const PRODUCT_T value = (CENTRED ? product + bias[i] : product) >> shift;
            y[i] = (Y_T)(CENTRED ? value : value < -128 ? -128 : value > 127 ? 127 : value);
        }
    } while (next_row(index, k->extent));
}
