/* y = table[x - smallest].
 *
 * x and y have any strides along six axes. An element is two loads and a store, which bound it.
 */
#include "lookup.h"

#include "loops.h"

void KERNEL(const struct lookup *k) {
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST], smallest = k->smallest;
    const TABLE_T *const table = (const TABLE_T *)k->table;
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) y[i * y_step] = table[x[i * x_step] - smallest];
    } while (next_row(index, k->extent));
}
