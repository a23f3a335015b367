/* y[m, n] = epilogue(the sum over k of (a[m, k] - a_zero_point) * (b[k, n] - b_zero_point)).
 *
 * All operands have batches and any strides. Where neighbours in b are neighbours in memory, a block of up to 64
 * columns takes a load of a for all, and for each column a load of b and a multiplication and addition, in vectors
 * where there are any: loads of b bound it, which several rows share for floats. Elsewhere a product is two loads, two
 * subtractions of zero points, a multiplication and an addition.
 */
#ifdef WIDE /* elements of 64 bits */
#undef ACC_T
#define ACC_T int64_t
#endif
#include "matmul.h"

#define X_T A_T
#define W_T B_T
#ifdef B_FROM
#define W_FROM B_FROM
#endif
#include "products.h"

/* Products that are added up before they enter the accumulator: short runs keep the rounding errors of floats small. */
enum { RUN = IS_FLOAT ? 16 : 1 << 30 };

/* acc = row of a times `lanes` columns of b, zero points aside. */
static void multiply(const struct matmul *k, const A_T *a, const B_T *b, ACC_T *acc, int lanes) {
    /*@ loop unroll LANES; */
    for (int j = 0; j < lanes; j++) acc[j] = 0;
    accumulate(acc, a, k->a_depth, b, k->b_depth, k->depth < RUN ? k->depth : RUN, lanes);
    /*@ loop unroll k->depth / RUN; */
    for (int from = RUN; from < k->depth; from += RUN) {
        const int count = k->depth - from < RUN ? k->depth - from : RUN;
        ACC_T part[LANES];
        /*@ loop unroll LANES; */
        for (int j = 0; j < lanes; j++) part[j] = 0;
        accumulate(part, a + from * k->a_depth, k->a_depth, b + from * k->b_depth, k->b_depth, count, lanes);
        /*@ loop unroll LANES; */
        for (int j = 0; j < lanes; j++) acc[j] += part[j];
    }
}

/* Floats have no zero points. */
static inline int zero_point(int given) {
    return IS_FLOAT ? 0 : given;
}

/* Some columns of POSITIONS rows. */
static inline void rows_of_floats(const struct matmul *k, const A_T *a, const B_T *b, Y_T *y, int first, int lanes) {
    ACC_T acc[POSITIONS][LANES], part[POSITIONS][LANES];
    for (int from = 0; from < k->depth || from == 0; from += RUN) {
        const int count = k->depth - from < RUN ? k->depth - from : RUN;
        ACC_T(*const to)[LANES] = from ? part : acc;
        for (int p = 0; p < POSITIONS; p++)
            for (int j = 0; j < lanes; j++) to[p][j] = 0;
        accumulate_all(to, a + from * k->a_depth, k->a_row, k->a_depth, b + from * k->b_depth, k->b_depth, count,
                       lanes);
        for (int p = 0; from && p < POSITIONS; p++)
            for (int j = 0; j < lanes; j++) acc[p][j] += part[p][j];
    }
    for (int p = 0; p < POSITIONS; p++) finish_row(acc[p], y + p * k->y_row, &k->epilogue, first, lanes);
}

/* Columns of y whose neighbours in b are neighbours in memory. The zero points are taken off apart from the products:
 * (a - za) * (b - zb) = a*b - za*b - zb*(a - za), summed over the depth. */
OUT_OF_LINE void block(const struct matmul *k, const A_T *a, const B_T *b, Y_T *y, int first, int lanes) {
    ACC_T column_sums[LANES];
    /*@ loop unroll LANES; */
    for (int j = 0; j < lanes; j++) column_sums[j] = 0;
    if (zero_point(k->a_zero_point) != 0) {
        const A_T one = 1;
        accumulate(column_sums, &one, 0, b + first, k->b_depth, k->depth, lanes);
    }
    int m = 0;
    for (; HAS_POSITIONS && m + POSITIONS <= k->rows && lanes % 8 == 0; m += POSITIONS)
        rows_of_floats(k, a + m * k->a_row, b + first, y + m * k->y_row + first, first, lanes);
    for (; m < k->rows; m++) {
        const A_T *row = a + m * k->a_row;
        ACC_T acc[LANES];
        multiply(k, row, b + first, acc, lanes);
        if (zero_point(k->a_zero_point) != 0) {
            /*@ loop unroll LANES; */
            for (int j = 0; j < lanes; j++) acc[j] -= (ACC_T)k->a_zero_point * column_sums[j];
        }
        if (zero_point(k->b_zero_point) != 0) {
            ACC_T sum = 0;
            /*@ loop unroll k->depth; */
            for (int d = 0; d < k->depth; d++) sum += (ACC_T)row[d * k->a_depth] - (ACC_T)k->a_zero_point;
            for (int j = 0; j < lanes; j++) acc[j] -= (ACC_T)k->b_zero_point * sum;
        }
        finish_row(acc, y + m * k->y_row + first, &k->epilogue, first, lanes);
    }
}

/* The inner product of a row of a and a column of b. */
static inline ACC_T dot(const struct matmul *k, const A_T *a, int a_step, const B_T *b, int b_step) {
    ACC_T acc = 0;
    /*@ loop unroll k->depth / RUN + 1; */
    for (int from = 0; from < k->depth;) {
        const int to = k->depth - from < RUN ? k->depth : from + RUN;
        ACC_T part = 0;
        /*@ loop unroll to - from; */
        for (int d = from; d < to; d++) {
            part += ((ACC_T)a[d * a_step] - (ACC_T)k->a_zero_point) * (WEIGHT(b[d * b_step]) - (ACC_T)k->b_zero_point);
        }
        acc += part;
        from = to;
    }
    return acc;
}

/* Neighbours in b are far apart in memory: b is transposed, or strided. */
OUT_OF_LINE void columns_apart(const struct matmul *k, const A_T *a, const B_T *b, Y_T *y) {
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

/* The product at one place of the batch axes. */
OUT_OF_LINE void product(const struct matmul *k, const int *index) {
    const A_T *a = (const A_T *)k->a;
    const B_T *b = (const B_T *)k->b;
    Y_T *y = (Y_T *)k->y;
    /*@ loop unroll 4; */
    for (int axis = 0; axis < 4; axis++) {
        a += index[axis] * k->a_batch[axis];
        b += index[axis] * k->b_batch[axis];
        y += index[axis] * k->y_batch[axis];
    }
    if (k->b_column != 1) {
        columns_apart(k, a, b, y);
        return;
    }
    /*@ loop unroll k->columns % LANES * k->columns; */ /* where the last block begins earlier */
    for (int first = 0, lanes; first < k->columns; first += lanes) {
        lanes = block_width(&first, k->columns);
        block(k, a, b, y, first, lanes);
    }
}

void KERNEL(const struct matmul *k) {
    const int *const batch = k->batch;
    int index[4] = {0};
    for (int left = batch[0] * batch[1] * batch[2] * batch[3]; left > 0; left--) {
        product(k, index);
        /*@ loop unroll 4; */
        for (int axis = 3; axis >= 0 && ++index[axis] >= batch[axis]; axis--) index[axis] = 0;
    }
}
