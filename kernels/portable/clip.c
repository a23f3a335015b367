/* y = clip(x, low, high), element by element.
 *
 * x and y have any strides along six axes. An element is a load, two comparisons and a store: loads and stores bound
 * it.
 */
#include "clip.h"

#include "kernel_instance.h"
#include "loops.h"

void KERNEL(const struct clip *k) {
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST];
    const X_T low = IS_FLOAT ? (X_T)k->low_f : (X_T)k->low, high = IS_FLOAT ? (X_T)k->high_f : (X_T)k->high;
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            const X_T value = x[i * x_step], least = value < low ? low : value; /* no branch */
            y[i * y_step] = least > high ? high : least;
        }
    } while (next_row(index, k->extent));
}
