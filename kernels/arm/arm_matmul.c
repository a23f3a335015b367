/* y[m, n] = the sum of a[m, k] b[n, k], finished: dense rows by dense columns. Zero points are constants of the
 * epilogue.
 *
 * Four rows are widened and multiplied by one column after the other (dots_of_vectors); other rows
 * are multiplied by four columns at a time (dots_of_rows). */
#include "arm_epilogue.h"

#include "../portable/matmul_dot.h"

#define VECTOR_T A_T
#define MATRIX_T B_T
#include "arm_dot.h"

/* Four rows at a time, of at most WIDENED_ROWS elements, a constant; none where it is 0. Returns how many rows are
 * done. */
static inline int widened_rows(const struct matmul_dot *k, const A_T *a, const B_T *b, Y_T *y) {
    if (!WIDENED_ROWS) return 0;
    uint32_t pairs[2 * WIDENED_ROWS + 1];
    const int whole = k->depth & ~3;
    const struct epilogue *const e = &k->epilogue;
    int m = 0;
    for (; m + VECTORS <= k->rows; m += VECTORS, a += VECTORS * k->a_row, y += VECTORS * k->y_row) {
        for (int i = 0; i < VECTORS; i++) widen(a + i * k->a_row, whole, pairs + i);
        const B_T *column = b;
        for (int n = 0; n < k->columns; n++, column += k->b_column) {
            const struct arm_channel c = arm_channel(e, n);
            int32_t sums[VECTORS];
            dots_of_vectors(pairs, column, whole, sums);
            for (int i = 0; i < VECTORS; i++) {
                for (int at = whole; at < k->depth; at++) sums[i] += a[i * k->a_row + at] * column[at];
                y[i * k->y_row + n] = arm_finish(sums[i], c, e);
            }
        }
    }
    return m;
}

void KERNEL(const struct matmul_dot *k) {
    const int *const batch = k->batch;
    for (int i = 0; i < batch[0] * batch[1] * batch[2] * batch[3]; i++) {
        const int at[4] = {i / (batch[1] * batch[2] * batch[3]), i / (batch[2] * batch[3]) % batch[1],
                           i / batch[3] % batch[2], i % batch[3]};
        const A_T *a = (const A_T *)k->a;
        const B_T *b = (const B_T *)k->b;
        Y_T *y = (Y_T *)k->y;
        for (int axis = 0; axis < 4; axis++) {
            a += at[axis] * k->a_batch[axis];
            b += at[axis] * k->b_batch[axis];
            y += at[axis] * k->y_batch[axis];
        }
        for (int m = widened_rows(k, a, b, y); m < k->rows; m++)
            multiply_rows(a + m * k->a_row, b, k->b_column, k->depth, k->columns, y + m * k->y_row, &k->epilogue, 0);
    }
}
