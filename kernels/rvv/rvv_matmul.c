/* A product with dense rows of b, up to 16 columns at a time with four rows of a. Zero points are constants of the
 * epilogue. */
#include "rvv_epilogue.h"

#include "../portable/matmul.h"

enum { POSITIONS = 4 };

static inline void block(const struct matmul *k, const A_T *const a[POSITIONS], const B_T *b, int first, size_t lanes,
                         Y_T *const y[POSITIONS]) {
    const A_T *const a0 = a[0], *const a1 = a[1], *const a2 = a[2], *const a3 = a[3];
    words s0 = words_zero(lanes), s1 = s0, s2 = s0, s3 = s0;
    for (int d = 0; d < k->depth; d++, b += k->b_depth) {
        const halves v = HALVES(B_T, b, lanes);
        s0 = words_scaled(s0, a0[d], v, lanes), s1 = words_scaled(s1, a1[d], v, lanes);
        s2 = words_scaled(s2, a2[d], v, lanes), s3 = words_scaled(s3, a3[d], v, lanes);
    }
    finish_words(s0, y[0], &k->epilogue, first, lanes), finish_words(s1, y[1], &k->epilogue, first, lanes);
    finish_words(s2, y[2], &k->epilogue, first, lanes), finish_words(s3, y[3], &k->epilogue, first, lanes);
}

static inline void one_row(const struct matmul *k, const A_T *a, const B_T *b, int first, size_t lanes, Y_T *y) {
    words s = words_zero(lanes);
    for (int d = 0; d < k->depth; d++, b += k->b_depth) s = words_scaled(s, a[d], HALVES(B_T, b, lanes), lanes);
    finish_words(s, y, &k->epilogue, first, lanes);
}

static void product(const struct matmul *k, const A_T *a, const B_T *b, Y_T *y) {
    for (int first = 0, lanes; first < k->columns; first += lanes) {
        lanes = (int)lanes_of(k->columns - first);
        int m = 0;
        for (; m + POSITIONS <= k->rows; m += POSITIONS) {
            const A_T *rows[POSITIONS];
            Y_T *to[POSITIONS];
            for (int i = 0; i < POSITIONS; i++)
                rows[i] = a + (m + i) * k->a_row, to[i] = y + (m + i) * k->y_row + first;
            block(k, rows, b + first, first, (size_t)lanes, to);
        }
        for (; m < k->rows; m++)
            one_row(k, a + m * k->a_row, b + first, first, (size_t)lanes, y + m * k->y_row + first);
    }
}

void KERNEL(const struct matmul *k) {
    const int *const batch = k->batch;
    int index[4] = {0};
    for (int left = batch[0] * batch[1] * batch[2] * batch[3]; left > 0; left--) {
        const A_T *a = (const A_T *)k->a;
        const B_T *b = (const B_T *)k->b;
        Y_T *y = (Y_T *)k->y;
        for (int axis = 0; axis < 4; axis++) {
            a += index[axis] * k->a_batch[axis];
            b += index[axis] * k->b_batch[axis];
            y += index[axis] * k->y_batch[axis];
        }
        product(k, a, b, y);
        for (int axis = 3; axis >= 0 && ++index[axis] == batch[axis]; axis--) index[axis] = 0;
    }
}
