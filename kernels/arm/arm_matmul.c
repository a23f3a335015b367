/* y[m, n] = the sum of a[m, k] b[n, k], finished: dense rows by dense columns. Zero points are constants of the
 * epilogue.
 *
 * With WIDENED_ROWS, a depth that is a multiple of four, four rows are widened and multiplied by two columns at a time,
 * which lie in twos (arm_dot.h). Else a row is multiplied by four columns at a time, of which four elements each lie
 * side by side: sixteen products in 24 cycles of a Cortex-M4. */
#include "arm_epilogue.h"

#include "../portable/matmul_dot.h"

#define VECTOR_T A_T
#define MATRIX_T B_T
#include "arm_dot.h"

/* Rows of at most WIDENED_ROWS elements, a constant; none where it is 0. */
static inline void multiply_widened(const struct matmul_dot *k, const A_T *a, const B_T *b, Y_T *y) {
    uint32_t pairs[2 * WIDENED_ROWS + 1];
    for (int left = k->rows; left > 0; left -= VECTORS, a += VECTORS * k->a_row, y += VECTORS * k->y_row) {
        const int count = left < VECTORS ? left : VECTORS;
        for (int i = 0; i < count; i++) widen(a + i * k->a_row, k->depth, pairs + i);
        if (count == VECTORS) multiply_vectors(pairs, b, k->depth, k->columns, y, k->y_row, &k->epilogue, 0);
        for (int i = 0; i < count && count < VECTORS; i++)
            multiply_vector(pairs + i, b, k->depth, k->columns, y + i * k->y_row, &k->epilogue, 0);
    }
}

/* A row with all columns. */
OUT_OF_LINE void multiply_row(const struct matmul_dot *k, const A_T *a, const B_T *b, Y_T *y) {
    const struct epilogue copy = k->epilogue, *const e = &copy; /* which no output overwrites */
    const int depth = k->depth, columns = k->columns & ~3;
    const A_T *const end = a + depth;
    for (int n = 0; n < columns; n += 4, y += 4) {
        struct arm_four_sums s = {arm_first(arm_channel(e, n)), arm_first(arm_channel(e, n + 1)),
                                  arm_first(arm_channel(e, n + 2)), arm_first(arm_channel(e, n + 3))};
        const A_T *x = a;
        for (; end - x >= 32; x += 32, b += 128) {
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) ARM_FOUR_COLUMNS(A_T, B_T)(&s, x + 4 * i, b + 16 * i);
        }
        for (; end - x >= 4; x += 4, b += 16) ARM_FOUR_COLUMNS(A_T, B_T)(&s, x, b);
        for (; x != end; x++, b += 4) s.s0 += *x * b[0], s.s1 += *x * b[1], s.s2 += *x * b[2], s.s3 += *x * b[3];
        const Y_T y0 = arm_finish(s.s0, arm_channel(e, n), e), y1 = arm_finish(s.s1, arm_channel(e, n + 1), e);
        const Y_T y2 = arm_finish(s.s2, arm_channel(e, n + 2), e), y3 = arm_finish(s.s3, arm_channel(e, n + 3), e);
        y[0] = y0, y[1] = y1, y[2] = y2, y[3] = y3;
    }
    for (int n = columns; n < k->columns; n++) { /* those that lie alone */
        const struct arm_channel c = arm_channel(e, n);
        int32_t sum = arm_first(c);
        for (int i = 0; i < depth; i++) sum += a[i] * *b++;
        *y++ = arm_finish(sum, c, e);
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
        if (WIDENED_ROWS)
            multiply_widened(k, a, b, y);
        else
            for (int m = 0; m < k->rows; m++) multiply_row(k, a + m * k->a_row, b, y + m * k->y_row);
    }
}
