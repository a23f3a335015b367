/* y[m, n] = epilogue(sum over blocks of scale[n, block] * (sum over k of a[m, k] * (b[n, k] - zero[n, block]))), of
 * bytes a and elements of b of 1 to 7 bits; sums over blocks are floats.
 *
 * a is [batch, rows, depth], b [columns, depth] packed, scales and zeros [columns, blocks], y [batch, rows, columns].
 * Two rows of a by four columns: of 4 bits 32 instructions for 64 products (see pulp_words.h), then 8 conversions,
 * multiplications and additions of floats for each block. Instructions bound it, of short blocks those on floats.
 */
#include "../portable/block_matmul.h"
#include "../portable/epilogue.h"

#define X_T A_T
#define W_T B_T
#define W_BITS B_BITS
#define W_IS_SIGNED B_IS_SIGNED
#include "pulp_words.h"

#ifdef ZEROS_T
enum { HAS_ZERO_POINTS = 1 };
#else
enum { HAS_ZERO_POINTS = 0 };
#define ZEROS_T int8_t
#endif

/* The sum of as many elements of a row of a as so many groups of b have. */
static inline int32_t sum_of(const X_T *x, int groups) {
    int32_t sum = 0;
    const int pairs = groups * (GROUP / 8);
    XP_BLOCK(BEGIN LOOP("%[n]", 4) XP_LOAD("t0", "x") XP_LOAD("t1", "x") DOT("sum", "t0", "%[ones]")
                 DOT("sum", "t1", "%[ones]") END : [sum] "+r"(sum),
             [x] "+r"(x) : [n] "r"(pairs), [sdot] "i"(SDOT), [ones] "r"(0x01010101) : "t0", "t1", "memory");
    for (int i = 0; i < 2 * pairs && !XPULP_INSN; i++, x += 4) sum = dot4(xp_load(x), 0x01010101, sum);
    return sum;
}

/* Where the zero point of a column's block is taken off. */
static inline float less_zero(int32_t acc, const ZEROS_T *zeros, int block, int32_t sum) {
    return (float)(HAS_ZERO_POINTS ? whole(acc) - zeros[block] * sum : whole(acc));
}

/* One or two rows of a by at most four columns of b; where there are fewer, the last one is computed several times. */
static inline void tile(const struct block_matmul *k, const X_T *x, int rows, Y_T *y, int n, int columns) {
    const int steps[4] = {0, columns > 1, columns > 2 ? 2 : columns - 1, columns - 1};
    const W_T *const w = (const W_T *)k->b + n * k->b_column;
    struct places at = {
        x, x + k->a_row, w, w + steps[1] * k->b_column, w + steps[2] * k->b_column, w + steps[3] * k->b_column};
    const float *scales[4];
    float y0[4] = {0}, y1[4] = {0};
    for (int j = 0; j < 4; j++) scales[j] = k->scales + (n + steps[j]) * k->scales_column;
    const ZEROS_T *zeros[4] = {0};
    for (int j = 0; j < 4 && HAS_ZERO_POINTS; j++)
        zeros[j] = (const ZEROS_T *)k->zeros + (n + steps[j]) * k->zeros_column;
    for (int left = k->depth, block = 0; left > 0; left -= k->size, block++) {
        const int groups = (left < k->size ? left : k->size) / GROUP;
        int32_t acc[8] = {0};
        const int32_t sum0 = HAS_ZERO_POINTS ? sum_of(at.x0, groups) : 0;
        const int32_t sum1 = HAS_ZERO_POINTS && rows == 2 ? sum_of(at.x1, groups) : 0;
        dots(&at, groups, rows, acc);
        for (int j = 0; j < 4; j++) {
            const float scale = scales[j][block];
            y0[j] += less_zero(acc[j], zeros[j], block, sum0) * scale;
            if (rows == 2) y1[j] += less_zero(acc[4 + j], zeros[j], block, sum1) * scale;
        }
    }
    finish_row(y0, y, &k->epilogue, n, columns);
    if (rows == 2) finish_row(y1, y + k->y_row, &k->epilogue, n, columns);
}

OUT_OF_LINE void one_row(const struct block_matmul *k, const X_T *x, Y_T *y) {
    for (int n = 0; n < k->columns; n += 4) tile(k, x, 1, y + n, n, k->columns - n < 4 ? k->columns - n : 4);
}

OUT_OF_LINE void two_rows(const struct block_matmul *k, const X_T *x, Y_T *y) {
    for (int n = 0; n < k->columns; n += 4) tile(k, x, 2, y + n, n, k->columns - n < 4 ? k->columns - n : 4);
}

void KERNEL(const struct block_matmul *k) {
    const int *const batch = k->batch;
    int index[4] = {0};
    for (int left = batch[0] * batch[1] * batch[2] * batch[3]; left > 0; left--) {
        const X_T *x = (const X_T *)k->a;
        Y_T *y = (Y_T *)k->y;
        for (int axis = 0; axis < 4; axis++) x += index[axis] * k->a_batch[axis], y += index[axis] * k->y_batch[axis];
        int m = k->rows;
        for (; m > 1; m -= 2, x += 2 * k->a_row, y += 2 * k->y_row) two_rows(k, x, y);
        if (m) one_row(k, x, y);
        for (int axis = 3; axis >= 0 && ++index[axis] == batch[axis]; axis--) index[axis] = 0;
    }
}
