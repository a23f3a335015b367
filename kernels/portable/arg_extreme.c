/* y = the index of the largest or smallest x of a row, of the first one or the last of equal ones.
 *
 * x and y have any strides along six axes of results; elements of a row are any distance apart. An element is a load
 * and a comparison, and a branch where it is better: loads bound it.
 */
#include "arg_extreme.h"

#include "loops.h"

#define less(a, b) ((a) < (b))
#define less_or_equal(a, b) ((a) <= (b))
#define greater(a, b) ((a) > (b))
#define greater_or_equal(a, b) ((a) >= (b))

void KERNEL(const struct arg_extreme *k) {
    int index[AXES] = {0};
    do {
        const X_T *const rows = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            const X_T *const x = rows + (ptrdiff_t)i * k->x_step[LAST];
            int best = 0;
            for (int j = 1; j < k->count; j++) {
                if (BETTER(x[(ptrdiff_t)j * k->step], x[(ptrdiff_t)best * k->step])) best = j;
            }
            y[(ptrdiff_t)i * k->y_step[LAST]] = (Y_T)best;
        }
    } while (next_row(index, k->extent));
}
