/* y = (x - zero_point) * scale, integers to floats.
 *
 * x and y have any strides along six axes. An element is a load, a subtraction, a conversion, a multiplication and a
 * store: instructions bound it.
 */
#include "dequantize.h"

#include "loops.h"

void KERNEL(const struct dequantize *k) {
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        const SCALE_T *const scale = (const SCALE_T *)k->scale + row_offset(index, k->scale_step);
        const ZERO_POINT_T *const zero = (const ZERO_POINT_T *)k->zero_point + row_offset(index, k->zero_point_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            y[i * k->y_step[LAST]] =
                (float)(x[i * k->x_step[LAST]] - zero[i * k->zero_point_step[LAST]]) * scale[i * k->scale_step[LAST]];
        }
    } while (next_row(index, k->extent));
}
