/* Products of blocks of rows of bytes with rows of w whose elements have 1 to 7 bits (see pulp_words.h). */
#ifndef DEEPLOY_PULP_PACKED_H
#define DEEPLOY_PULP_PACKED_H

#include "pulp_words.h"

#include "pulp_result.h"

enum { BY_FOUR = 0, HAS_BLOCKS = 0 };

/* Rows of w, the same four times at most. */
static inline struct places places_of(const X_T *x, int x_step, const W_T *w, int first, int second, int third) {
    return (struct places){x, x + x_step, w, w + first, w + second, w + third};
}

/* Two rows of x at any distance by four of w. */
static inline void block_2x4(const struct pulp_product *p, const struct rows *r, const X_T *x0, const W_T *w0, OUT_T *y,
                             const int32_t *sums, struct operands s) {
    const int y_step = r->y_step;
    struct places at = places_of(x0, r->x_step, w0, p->w_row, 2 * p->w_row, 3 * p->w_row);
    int32_t acc[8] = {0};
    (void)sums;
    dots(&at, p->depth / GROUP, 2, acc);
    finish_2(whole(acc[0]), whole(acc[4]), y, y_step, 0, s, p),
        finish_2(whole(acc[1]), whole(acc[5]), y, y_step, 1, s, p);
    finish_2(whole(acc[2]), whole(acc[6]), y, y_step, 2, s, p),
        finish_2(whole(acc[3]), whole(acc[7]), y, y_step, 3, s, p);
}

/* Four rows of x, two and two, which there is no faster way for. */
static inline void block_4x4(const struct pulp_product *p, const struct rows *r, const X_T *x, const W_T *w, OUT_T *y,
                             const int32_t *sums, struct operands s) {
    block_2x4(p, r, x, w, y, sums, s);
    block_2x4(p, r, x + 2 * r->x_step, w, y + 2 * r->y_step, sums, s);
}

static inline void rows_in_blocks(const struct pulp_product *p, const struct rows *r, const W_T *w, int channel) {
    (void)p, (void)r, (void)w, (void)channel;
}

/* One row of x. */
static inline void block_1x4(const struct pulp_product *p, const struct rows *r, const X_T *x, const W_T *w0, OUT_T *y,
                             const int32_t *sums, struct operands s) {
    struct places at = places_of(x, 0, w0, p->w_row, 2 * p->w_row, 3 * p->w_row);
    int32_t acc[4] = {0};
    (void)sums, (void)r;
    dots(&at, p->depth / GROUP, 1, acc);
    finish_1(whole(acc[0]), y, 0, s, p), finish_1(whole(acc[1]), y, 1, s, p);
    finish_1(whole(acc[2]), y, 2, s, p), finish_1(whole(acc[3]), y, 3, s, p);
}

/* Two rows of x by two filters, the same twice where there is but one. */
static inline void block_2x2(const struct pulp_product *p, const struct rows *r, const X_T *x0, int is_two,
                             const W_T *w0, int w_step, OUT_T *y, const int32_t *sums, int channel) {
    const int y_step = is_two ? r->y_step : 0;
    struct places at = places_of(x0, is_two ? r->x_step : 0, w0, w_step, 0, 0);
    const struct operands s = operands_of(p, channel);
    int32_t acc[8] = {0};
    (void)sums;
    dots(&at, p->depth / GROUP, 2, acc);
    finish_2(whole(acc[0]), whole(acc[4]), y, y_step, 0, s, p);
    finish_2(whole(acc[1]), whole(acc[5]), y, y_step, w_step != 0, s, p);
}

#endif
