/* y = x, between any two layouts.
 *
 * x and y have any strides along six axes. An element is a load and a store, which bound it; dense rows of one type are
 * copied as bytes.
 */
#include "copy.h"

#include <string.h>

#include "loops.h"

/* Whether elements of both types have the same bits for every value: both are whole numbers of one size, both floats,
 * or both bool. */
#define IS_SAME (sizeof(X_T) == sizeof(Y_T) && ((X_T)0.5 == 0) == ((Y_T)0.5 == 0))

void KERNEL(const struct copy *k) {
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        if (IS_SAME && x_step == 1 && y_step == 1) {
            memcpy(y, x, sizeof *y * (size_t)k->extent[LAST]);
            continue;
        }
        for (int i = 0; i < k->extent[LAST]; i++) y[i * y_step] = (Y_T)x[i * x_step];
    } while (next_row(index, k->extent));
}
