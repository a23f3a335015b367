/* A product of dense rows with dense columns, one row with four columns at a time. Zero points are constants of the
 * epilogue. */
#include "helium_epilogue.h"

#include "../portable/matmul_dot.h"

void KERNEL(const struct matmul_dot *k) {
    const int *const batch = k->batch;
    for (int i = 0; i < batch[0] * batch[1] * batch[2] * batch[3]; i++) {
        const int at[4] = {i / (batch[1] * batch[2] * batch[3]), i / (batch[2] * batch[3]) % batch[1],
                           i / batch[3] % batch[2], i % batch[3]};
        const int8_t *a = (const int8_t *)k->a, *b = (const int8_t *)k->b;
        Y_T *y = (Y_T *)k->y;
        for (int axis = 0; axis < 4; axis++) {
            a += at[axis] * k->a_batch[axis];
            b += at[axis] * k->b_batch[axis];
            y += at[axis] * k->y_batch[axis];
        }
        for (int m = 0; m < k->rows; m++)
            multiply_rows(a + m * k->a_row, b, k->b_column, k->depth, k->columns, y + m * k->y_row, &k->epilogue, 0);
    }
}
