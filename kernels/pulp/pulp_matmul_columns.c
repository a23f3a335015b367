#define X_T A_T
#define W_T B_T
#include "pulp_matmul_columns.h"

/* Four columns become rows that lie `w_row` apart: blocks of four by four bytes by shuffles. */
OUT_OF_LINE void turn(const struct pulp_matmul_columns *k, const B_T *b, B_T *to) {
    const uint32_t lower = 0x05010400, upper = 0x07030602, ends = 0x07060302;
    const int depth = k->product.depth, row = k->b_row, pitch = k->product.w_row;
    int i = depth;
    for (; i >= 4; i -= 4, b += 4 * row, to += 4) {
        const uint32_t r0 = xp_load(b), r1 = xp_load(b + row), r2 = xp_load(b + 2 * row), r3 = xp_load(b + 3 * row);
        const uint32_t t0 = xp_shuffle2(r0, r1, lower), t1 = xp_shuffle2(r0, r1, upper);
        const uint32_t t2 = xp_shuffle2(r2, r3, lower), t3 = xp_shuffle2(r2, r3, upper);
        xp_store(to, xp_pack(t2, t0)), xp_store(to + pitch, xp_shuffle2(t0, t2, ends));
        xp_store(to + 2 * pitch, xp_pack(t3, t1)), xp_store(to + 3 * pitch, xp_shuffle2(t1, t3, ends));
    }
    for (; i > 0; i--, b += row, to++) {
        to[0] = b[0], to[pitch] = b[1], to[2 * pitch] = b[2], to[3 * pitch] = b[3];
    }
}

/* The same for fewer than four. */
OUT_OF_LINE void turn_few(const struct pulp_matmul_columns *k, const B_T *b, B_T *to) {
    for (int i = 0; i < k->product.depth; i++) {
        for (int j = 0; j < k->columns; j++) to[j * k->product.w_row + i] = b[i * k->b_row + j];
    }
}

static inline void multiply(const struct pulp_matmul_columns *k, const A_T *a, const B_T *b, Y_T *y) {
    B_T *const turned = (B_T *)k->turned;
    if (k->columns < 4) {
        struct pulp_product fewer = k->product;
        fewer.filters = k->columns;
        turn_few(k, b, turned);
        product(&fewer, (struct rows){a, y, k->a_row, k->y_row, k->rows}, turned, 0);
        return;
    }
    for (int next = 0; next < k->columns; next += 4) {
        const int first = next + 4 <= k->columns ? next : k->columns - 4; /* the last four may begin earlier */
        turn(k, b + first, turned);
        product(&k->product, (struct rows){a, y + first, k->a_row, k->y_row, k->rows}, turned, first);
    }
}

void KERNEL(const struct pulp_matmul_columns *k) {
    for (int i = 0; i < k->batch[0]; i++) {
        for (int j = 0; j < k->batch[1]; j++) {
            for (int l = 0; l < k->batch[2]; l++) {
                for (int h = 0; h < k->batch[3]; h++) {
                    multiply(
                        k,
                        (const A_T *)k->a + i * k->a_batch[0] + j * k->a_batch[1] + l * k->a_batch[2] +
                            h * k->a_batch[3],
                        (const B_T *)k->b + i * k->b_batch[0] + j * k->b_batch[1] + l * k->b_batch[2] +
                            h * k->b_batch[3],
                        (Y_T *)k->y + i * k->y_batch[0] + j * k->y_batch[1] + l * k->y_batch[2] + h * k->y_batch[3]);
                }
            }
        }
    }
}
