/* y = condition ? a : b, element by element.
 *
 * All operands have any strides along six axes. An element is three loads and a store, which bound it; a row whose
 * condition is one element is a copy.
 */
#include "select.h"

#include <string.h>

#include "loops.h"

void KERNEL(const struct select *k) {
    const int c_step = k->condition_step[LAST], a_step = k->a_step[LAST], b_step = k->b_step[LAST],
              y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const CONDITION_T *const c = (const CONDITION_T *)k->condition + row_offset(index, k->condition_step);
        const A_T *const a = (const A_T *)k->a + row_offset(index, k->a_step);
        const B_T *const b = (const B_T *)k->b + row_offset(index, k->b_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        if (c_step == 0) {
            const Y_T *const chosen = *c ? (const Y_T *)a : (const Y_T *)b;
            const int step = *c ? a_step : b_step;
            if (step == 1 && y_step == 1) {
                memcpy(y, chosen, sizeof *y * (size_t)k->extent[LAST]);
            } else {
                for (int i = 0; i < k->extent[LAST]; i++) y[i * y_step] = chosen[i * step];
            }
            continue;
        }
        for (int i = 0; i < k->extent[LAST]; i++) y[i * y_step] = c[i * c_step] ? a[i * a_step] : b[i * b_step];
    } while (next_row(index, k->extent));
}
