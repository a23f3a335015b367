#include "matmul_dot.h"

#define DOT_T B_T
#ifdef B_BITS
#define DOT_BITS B_BITS
#define DOT_IS_SIGNED B_IS_SIGNED
#endif
#include "dot.h"

/* One row of y. The zero point of b is taken off at the end, as b_zero_point * sum(a - a_zero_point). */
static inline void row(const struct matmul_dot *k, const A_T *a, const B_T *b, Y_T *y) {
    int16_t vector[DEPTH];
    for (int first = 0; first < k->columns; first += BLOCK) {
        const int columns = k->columns - first < BLOCK ? k->columns - first : BLOCK;
        int32_t acc[BLOCK] = {0};
        int32_t sum = 0;
        for (int begin = 0; begin < k->depth; begin += DEPTH) {
            const int depth = k->depth - begin < DEPTH ? k->depth - begin : DEPTH;
            if (first == 0 || k->depth > DEPTH) {
                for (int i = 0; i < depth; i++) vector[i] = (int16_t)(a[(begin + i) * k->a_depth] - k->a_zero_point);
            }
            if (k->b_zero_point != 0) {
                for (int i = 0; i < depth; i++) sum += vector[i];
            }
            dots(acc, vector, b + first * k->b_column + begin / PER_UNIT, k->b_column, depth, columns);
        }
        if (k->b_zero_point != 0) {
            for (int j = 0; j < columns; j++) acc[j] -= sum * k->b_zero_point;
        }
        finish_row(acc, y + first, &k->epilogue, first, columns);
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
        for (int m = 0; m < k->rows; m++) row(k, a + m * k->a_row, b, y + m * k->y_row);
    }
}
