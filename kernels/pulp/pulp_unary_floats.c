/* y = FUNCTION(x) of floats, element by element.
 *
 * x and y have any strides along six axes. Coefficients of the function are copied onto the stack, which is near:
 * constants lie in L2, and functions have more of them than there are registers. The function bounds it.
 */
#include "../portable/unary.h"

#include "xpulp.h" /* in front of what is optimised alike */

#include "../portable/functions.h"
#include "../portable/loops.h"

#undef FLOAT_SERIES
#define FLOAT_SERIES series

static inline void copy_series(float *copied) {
    for (int i = 0; i < SERIES; i++) copied[i] = float_series()[i];
    XP_BLOCK("" : : "r"(copied) : "memory"); /* compilers would read the constants instead */
}

void KERNEL(const struct unary *k) {
    const float a = k->alpha, b = k->beta;
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST];
    float copied[SERIES];
    copy_series(copied);
    const float *restrict const series = copied;
    (void)a;
    (void)b;
    (void)series;
    int index[AXES] = {0};
    do {
        const float *const x = (const float *)k->x + row_offset(index, k->x_step);
        float *const y = (float *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) y[i * y_step] = FUNCTION(x[i * x_step], a, b);
    } while (next_row(index, k->extent));
}
