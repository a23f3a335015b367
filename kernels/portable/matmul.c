#include "matmul.h"

#include "block.h"

/* Products that are added up before they enter the accumulator: short runs keep the rounding errors of floats small. */
#ifdef ACC_IS_FLOAT
enum { RUN = 16 };
#else
enum { RUN = 1 << 30 };
#endif

/* Columns of y whose neighbours in b are neighbours in memory. The zero point of b is taken off at the end, as
 * b_zero_point * sum(a - a_zero_point). */
static inline void block(const struct matmul *k, const A_T *a, const B_T *b, Y_T *y, int first, int lanes) {
    for (int m = 0; m < k->rows; m++) {
        ACC_T acc[LANES];
        ACC_T sum = 0;
        for (int j = 0; j < lanes; j++) acc[j] = 0;
        for (int from = 0; from < k->depth; from += RUN) {
            const int to = k->depth - from < RUN ? k->depth : from + RUN;
            ACC_T part[LANES];
            for (int j = 0; j < lanes; j++) part[j] = 0;
            for (int d = from; d < to; d++) {
                const ACC_T value = (ACC_T)a[m * k->a_row + d * k->a_depth] - (ACC_T)k->a_zero_point;
                const B_T *row = b + d * k->b_depth + first;
                sum += value;
                for (int j = 0; j < lanes; j++) part[j] += value * (ACC_T)row[j];
            }
            for (int j = 0; j < lanes; j++) acc[j] += part[j];
        }
        if (k->b_zero_point != 0) {
            for (int j = 0; j < lanes; j++) acc[j] -= sum * (ACC_T)k->b_zero_point;
        }
        finish_row(acc, y + m * k->y_row + first, &k->epilogue, first, lanes);
    }
}

/* The inner product of a row of a and a column of b. */
static inline ACC_T dot(const struct matmul *k, const A_T *a, int a_step, const B_T *b, int b_step) {
    ACC_T acc = 0;
    for (int d = 0; d < k->depth; d++) {
        acc += ((ACC_T)a[d * a_step] - (ACC_T)k->a_zero_point) * ((ACC_T)b[d * b_step] - (ACC_T)k->b_zero_point);
    }
    return acc;
}

/* Neighbours in b are far apart in memory: b is transposed, or strided. */
static void columns_apart(const struct matmul *k, const A_T *a, const B_T *b, Y_T *y) {
    const int dense = k->a_depth == 1 && k->b_depth == 1;
    for (int m = 0; m < k->rows; m++) {
        for (int n = 0; n < k->columns; n++) {
            const A_T *row = a + m * k->a_row;
            const B_T *column = b + n * k->b_column;
            const ACC_T acc = dense ? dot(k, row, 1, column, 1) : dot(k, row, k->a_depth, column, k->b_depth);
            y[m * k->y_row + n] = finish(acc, &k->epilogue, n);
        }
    }
}

static void product(const struct matmul *k, const A_T *a, const B_T *b, Y_T *y) {
    if (k->b_column != 1) {
        columns_apart(k, a, b, y);
        return;
    }
    for (int first = 0, lanes; first < k->columns; first += lanes) {
        lanes = block_width(&first, k->columns);
        WITH_WIDTH(lanes, block, k, a, b, y, first);
    }
}

void KERNEL(const struct matmul *k) {
    const A_T *a = (const A_T *)k->a;
    const B_T *b = (const B_T *)k->b;
    Y_T *y = (Y_T *)k->y;
    for (int i = 0; i < k->batch[0]; i++) {
        for (int j = 0; j < k->batch[1]; j++) {
            for (int l = 0; l < k->batch[2]; l++) {
                for (int h = 0; h < k->batch[3]; h++) {
                    product(k, a + i * k->a_batch[0] + j * k->a_batch[1] + l * k->a_batch[2] + h * k->a_batch[3],
                            b + i * k->b_batch[0] + j * k->b_batch[1] + l * k->b_batch[2] + h * k->b_batch[3],
                            y + i * k->y_batch[0] + j * k->y_batch[1] + l * k->y_batch[2] + h * k->y_batch[3]);
                }
            }
        }
    }
}
