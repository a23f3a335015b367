/* y = FUNCTION(x) of floats, element by element.
 *
 * x and y have any strides along six axes. An element is a load, the function and a store: the function bounds it.
 */
#include "unary.h"

#include "functions.h"
#include "loops.h"

void KERNEL(const struct unary *k) {
    const float a = k->alpha, b = k->beta;
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST];
    (void)a;
    (void)b;
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) y[i * y_step] = FUNCTION(x[i * x_step], a, b);
    } while (next_row(index, k->extent));
}
