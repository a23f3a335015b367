#include "matmul.h"

#define X_T A_T
#define W_T B_T

#include "block.h"

static void product(const struct matmul *k, const A_T *a, const B_T *b, Y_T *y) {
    for (int m = 0; m < k->rows; m += ROWS) {
        const int rows = k->rows - m < ROWS ? k->rows - m : ROWS;
        const A_T *x[ROWS];
        const int step[ROWS] = {k->a_depth, k->a_depth, k->a_depth, k->a_depth};
        for (int r = 0; r < ROWS; r++) x[r] = a + (ptrdiff_t)(m + (r < rows ? r : rows - 1)) * k->a_row;
        for (int n = 0; n < k->columns; n += COLUMNS) {
            const int columns = k->columns - n < COLUMNS ? k->columns - n : COLUMNS;
            ACC_T acc[ROWS][COLUMNS] = {{0}};
            accumulate(acc, x, step, (ACC_T)k->a_zero_point, b + (ptrdiff_t)n * k->b_column, k->b_depth, k->b_column,
                       (ACC_T)k->b_zero_point, k->depth, columns);
            for (int r = 0; r < rows; r++) finish_row(acc[r], y + (ptrdiff_t)(m + r) * k->y_row + n, &k->epilogue, n, columns);
        }
    }
}

/* A single row: the accumulators of many columns at once, so that b is read in long runs. */
static void single_row(const struct matmul *k, const A_T *a, const B_T *b, Y_T *y) {
    enum { RUN = 128 };
    for (int n = 0; n < k->columns; n += RUN) {
        const int columns = k->columns - n < RUN ? k->columns - n : RUN;
        ACC_T acc[RUN] = {0};
        for (int d = 0; d < k->depth; d++) {
            const ACC_T value = (ACC_T)a[(ptrdiff_t)d * k->a_depth] - (ACC_T)k->a_zero_point;
            const B_T *const row = b + (ptrdiff_t)d * k->b_depth + n;
            if (columns == RUN) {
                for (int j = 0; j < RUN; j++) acc[j] += value * ((ACC_T)row[j] - (ACC_T)k->b_zero_point);
            } else {
                for (int j = 0; j < columns; j++) acc[j] += value * ((ACC_T)row[j] - (ACC_T)k->b_zero_point);
            }
        }
        finish_row(acc, y + n, &k->epilogue, n, columns);
    }
}

void KERNEL(const struct matmul *k) {
    const int *const batch = k->batch;
    for (int i = 0; i < batch[0] * batch[1] * batch[2] * batch[3]; i++) {
        const int index[4] = {i / (batch[3] * batch[2] * batch[1]), i / (batch[3] * batch[2]) % batch[1], i / batch[3] % batch[2], i % batch[3]};
        ptrdiff_t a = 0, b = 0, y = 0;
        for (int axis = 0; axis < 4; axis++) {
            a += (ptrdiff_t)index[axis] * k->a_batch[axis];
            b += (ptrdiff_t)index[axis] * k->b_batch[axis];
            y += (ptrdiff_t)index[axis] * k->y_batch[axis];
        }
        if (k->rows == 1 && k->b_column == 1) single_row(k, (const A_T *)k->a + a, (const B_T *)k->b + b, (Y_T *)k->y + y);
        else product(k, (const A_T *)k->a + a, (const B_T *)k->b + b, (Y_T *)k->y + y);
    }
}
