/* y[m, n] = epilogue(the sum over k of (a[m, k] - a_zero_point) * (b[n, k] - b_zero_point)): rows of a are widened to
 * 16 bits once, then multiplied with the rows of b.
 *
 * a is [rows, depth] of bytes, b [columns, depth], perhaps packed in 1 to 7 bits, y [rows, columns]. Four columns share
 * the loads of a row: 1.25 loads and a multiplication and addition a product, in vectors of pairs where there are any.
 * Multiplications bound it; packed elements take 4 to 6 operations each to unpack, which bound theirs.
 */
#include "matmul_dot.h"

#define DOT_T B_T
#ifdef B_BITS
#define DOT_BITS B_BITS
#define DOT_IS_SIGNED B_IS_SIGNED
#endif
#include "dot.h"

/* `count` rows of y, at most VECTORS. The zero point of b is taken off at the end, as b_zero_point * sum(a -
 * a_zero_point). */
static inline void rows(const struct matmul_dot *k, const A_T *a, int count, const B_T *b, Y_T *y) {
    int16_t vectors[VECTORS][DEPTH];
    /*@ loop unroll 1; */ /* which widens the rows */
    for (int first = 0; first < k->columns; first += BLOCK) {
        const int columns = k->columns - first < BLOCK ? k->columns - first : BLOCK;
        int32_t acc[VECTORS][BLOCK] = {{0}};
        int32_t sums[VECTORS] = {0};
        /*@ loop unroll k->depth / DEPTH + 1; */
        for (int begin = 0; begin < k->depth; begin += DEPTH) {
            const int depth = k->depth - begin < DEPTH ? k->depth - begin : DEPTH;
            /*@ loop unroll VECTORS; */
            for (int m = 0; m < count; m++) {
                const A_T *const from = a + m * k->a_row + begin * k->a_depth;
                int16_t *const vector = vectors[m];
                if (first == 0 || k->depth > DEPTH) {
                    /*@ loop unroll depth; */
                    for (int i = 0; i < depth; i++) vector[i] = (int16_t)(from[i * k->a_depth] - k->a_zero_point);
                }
                if (k->b_zero_point != 0) {
                    /*@ loop unroll depth; */
                    for (int i = 0; i < depth; i++) sums[m] += vector[i];
                }
            }
            dots_of_vectors(acc, (const int16_t (*)[DEPTH])vectors, count, b + first * k->b_column + stored(begin),
                            k->b_column, depth, columns);
        }
        for (int m = 0; m < count; m++) {
            if (k->b_zero_point != 0) {
                for (int j = 0; j < columns; j++) acc[m][j] -= sums[m] * k->b_zero_point;
            }
            finish_row(acc[m], y + m * k->y_row + first, &k->epilogue, first, columns);
        }
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
        /*@ loop unroll 4; */
        for (int axis = 0; axis < 4; axis++) {
            a += at[axis] * k->a_batch[axis];
            b += at[axis] * k->b_batch[axis];
            y += at[axis] * k->y_batch[axis];
        }
        for (int m = 0; m < k->rows; m += VECTORS)
            rows(k, a + m * k->a_row, k->rows - m < VECTORS ? k->rows - m : VECTORS, b, y + m * k->y_row);
    }
}
