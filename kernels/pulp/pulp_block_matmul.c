/* Products of bytes with columns of 1 to 7 bits, which have a scale and perhaps a zero point for every block of
 * elements. */
#include "../portable/block_matmul.h"

#define X_T A_T
#define W_T B_T
#define W_BITS B_BITS
#define W_IS_SIGNED B_IS_SIGNED
#include "pulp_words.h"

#ifdef ZEROS_T
/* The sum of as many elements of a row of a as so many groups of b have. */
static inline int32_t sum_of(const X_T *x, int groups) {
    int32_t sum = 0;
    const int pairs = groups * (GROUP / 8);
#ifdef XPULP_INSN
    __asm__ volatile(BEGIN LOOP("%[n]", 4) LOAD("t0", "x") LOAD("t1", "x") DOT("sum", "t0", "%[ones]")
                         DOT("sum", "t1", "%[ones]") END
                     : [sum] "+r"(sum), [x] "+r"(x)
                     : [n] "r"(pairs), [sdot] "i"(SDOT), [ones] "r"(0x01010101)
                     : "t0", "t1", "memory");
#else
    for (int i = 0; i < 2 * pairs; i++, x += 4) sum = dot4(xp_load(x), 0x01010101, sum);
#endif
    return sum;
}
#define LESS_ZERO(acc, sum, j) (WHOLE(acc) - zeros[j][block] * (sum))
#else
#define LESS_ZERO(acc, sum, j) WHOLE(acc)
#endif

/* One or two rows of a by at most four columns of b; where there are fewer, the last one is computed several times. */
static inline void tile(const struct block_matmul *k, const X_T *x, int rows, Y_T *y, int n, int columns) {
    const int steps[4] = {0, columns > 1, columns > 2 ? 2 : columns - 1, columns - 1};
    const W_T *const w = (const W_T *)k->b + n * k->b_column;
    struct places at = {
        x, x + k->a_row, w, w + steps[1] * k->b_column, w + steps[2] * k->b_column, w + steps[3] * k->b_column};
    const float *scales[4];
    float y0[4] = {0}, y1[4] = {0};
    for (int j = 0; j < 4; j++) scales[j] = k->scales + (n + steps[j]) * k->scales_column;
#ifdef ZEROS_T
    const ZEROS_T *zeros[4];
    for (int j = 0; j < 4; j++) zeros[j] = (const ZEROS_T *)k->zeros + (n + steps[j]) * k->zeros_column;
#endif
    for (int left = k->depth, block = 0; left > 0; left -= k->size, block++) {
        const int groups = (left < k->size ? left : k->size) / GROUP;
        int32_t acc[8] = {0};
#ifdef ZEROS_T
        const int32_t sum0 = sum_of(at.x0, groups), sum1 = rows == 1 ? 0 : sum_of(at.x1, groups);
#endif
        dots(&at, groups, rows, acc);
        for (int j = 0; j < 4; j++) {
            const float scale = scales[j][block];
            y0[j] += (float)LESS_ZERO(acc[j], sum0, j) * scale;
            if (rows == 2) y1[j] += (float)LESS_ZERO(acc[4 + j], sum1, j) * scale;
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
