/* A product of dense rows with dense columns, two of each at a time. Zero points are constants of the epilogue. */
#include "../portable/matmul_dot.h"

#define VECTOR_T A_T
#define MATRIX_T B_T
#include "arm_dot.h"

/* The rows y0 and, unless it is null, y1. */
static void two_rows(const struct matmul_dot *k, const A_T *a0, const A_T *a1, const B_T *b, Y_T *y0, Y_T *y1) {
    for (int first = 0; first < k->columns; first += BLOCK) {
        const int columns = k->columns - first < BLOCK ? k->columns - first : BLOCK;
        int32_t acc[2][BLOCK] = {{0}, {0}};
        dots(acc[0], acc[1], a0, a1, b + first * k->b_column, k->b_column, k->depth, columns);
        finish_row(acc[0], y0 + first, &k->epilogue, first, columns);
        if (y1) finish_row(acc[1], y1 + first, &k->epilogue, first, columns);
    }
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
        for (int m = 0; m < k->rows; m += 2) {
            const int is_pair = m + 1 < k->rows;
            const A_T *const row = a + m * k->a_row;
            two_rows(k, row, is_pair ? row + k->a_row : row, b, y + m * k->y_row, is_pair ? y + (m + 1) * k->y_row : 0);
        }
    }
}
