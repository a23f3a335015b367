#include "matmul.h"

#define X_T A_T
#define W_T B_T
#include "products.h"

/* Products that are added up before they enter the accumulator: short runs keep the rounding errors of floats small. */
#ifdef ACC_IS_FLOAT
enum { RUN = 16 };
#else
enum { RUN = 1 << 30 };
#endif

/* acc = row of a times `lanes` columns of b, zero points aside. */
static void multiply(const struct matmul *k, const A_T *a, const B_T *b, ACC_T *acc, int lanes) {
    for (int j = 0; j < lanes; j++) acc[j] = 0;
    accumulate(acc, a, k->a_depth, b, k->b_depth, k->depth < RUN ? k->depth : RUN, lanes);
    for (int from = RUN; from < k->depth; from += RUN) {
        const int count = k->depth - from < RUN ? k->depth - from : RUN;
        ACC_T part[LANES];
        for (int j = 0; j < lanes; j++) part[j] = 0;
        accumulate(part, a + from * k->a_depth, k->a_depth, b + from * k->b_depth, k->b_depth, count, lanes);
        for (int j = 0; j < lanes; j++) acc[j] += part[j];
    }
}

/* Columns of y whose neighbours in b are neighbours in memory. The zero points are taken off apart from the products:
 * (a - za) * (b - zb) = a*b - za*b - zb*(a - za), summed over the depth. */
static void block(const struct matmul *k, const A_T *a, const B_T *b, Y_T *y, int first, int lanes) {
    ACC_T column_sums[LANES];
    for (int j = 0; j < lanes; j++) column_sums[j] = 0;
    if (k->a_zero_point != 0) {
        const A_T one = 1;
        accumulate(column_sums, &one, 0, b + first, k->b_depth, k->depth, lanes);
    }
    for (int m = 0; m < k->rows; m++) {
        const A_T *row = a + m * k->a_row;
        ACC_T acc[LANES];
        multiply(k, row, b + first, acc, lanes);
        if (k->a_zero_point != 0) {
            for (int j = 0; j < lanes; j++) acc[j] -= (ACC_T)k->a_zero_point * column_sums[j];
        }
        if (k->b_zero_point != 0) {
            ACC_T sum = 0;
            for (int d = 0; d < k->depth; d++) sum += (ACC_T)row[d * k->a_depth] - (ACC_T)k->a_zero_point;
            for (int j = 0; j < lanes; j++) acc[j] -= (ACC_T)k->b_zero_point * sum;
        }
        finish_row(acc, y + m * k->y_row + first, &k->epilogue, first, lanes);
    }
}

/* The inner product of a row of a and a column of b. */
static inline ACC_T dot(const struct matmul *k, const A_T *a, int a_step, const B_T *b, int b_step) {
    ACC_T acc = 0;
    for (int from = 0; from < k->depth;) {
        const int to = k->depth - from < RUN ? k->depth : from + RUN;
        ACC_T part = 0;
        for (int d = from; d < to; d++) {
            part += ((ACC_T)a[d * a_step] - (ACC_T)k->a_zero_point) * ((ACC_T)b[d * b_step] - (ACC_T)k->b_zero_point);
        }
        acc += part;
        from = to;
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
        block(k, a, b, y, first, lanes);
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
