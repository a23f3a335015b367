/* y = x, between any two layouts.
 *
 * x and y have any strides along six axes. An element is a load and a store, which bound it.
 */
#include "copy.h"

#include "loops.h"

void KERNEL(const struct copy *k) {
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) y[i * y_step] = (Y_T)x[i * x_step];
    } while (next_row(index, k->extent));
}
