/* Products of rows of x with rows of w, by blocks that pulp_bytes.h or pulp_packed.h has, one of which is included
 * before. */
#ifndef DEEPLOY_PULP_MULTIPLY_H
#define DEEPLOY_PULP_MULTIPLY_H

#include "pulp_result.h"

/* All rows, fewer than four filters. */
OUT_OF_LINE void few(const struct pulp_product *given, const struct rows *given_rows, const W_T *filters, int channel) {
    const struct pulp_product p = *given;
    const struct rows r = *given_rows;
    for (int j = 0; j < p.filters; j += 2) {
        const int w_step = j + 1 < p.filters ? p.w_row : 0;
        const X_T *x = r.x;
        OUT_T *y = r.y + j;
        const int32_t *sums = r.sums;
        for (int i = 0; i < r.count; i += 2, x += 2 * r.x_step, y += 2 * r.y_step, sums = later_sums(sums, 2)) {
            block_2x2(&p, &r, x, i + 1 < r.count, filters + j * p.w_row, w_step, y, sums, channel + j);
        }
    }
}

/* All filters, four at a time, by rows of which `high` are computed together: 1 is one row alone. A last group of fewer
 * than four filters is completed by filters before it. The product is copied: what lies in memory would be read again
 * after every store to y. */
FOLDED void each_group(const struct pulp_product *given, const struct rows *given_rows, const W_T *w, int channel,
                       int high) {
    const struct pulp_product p = *given;
    const struct rows r = *given_rows;
    struct operands s = operands_of(&p, channel);
    OUT_T *out = r.y;
    for (int left = p.filters;;) {
        if (high == 1) {
            block_1x4(&p, &r, r.x, w, out, r.sums, s);
        } else {
            const X_T *x = r.x;
            OUT_T *y = out;
            const int32_t *sums = r.sums;
            for (int i = r.count; i > 0; i -= high) {
                if (high == 4)
                    block_4x4(&p, &r, x, w, y, sums, s);
                else
                    block_2x4(&p, &r, x, w, y, sums, s);
                x += high * r.x_step, y += high * r.y_step, sums = later_sums(sums, high);
            }
        }
        left -= 4;
        if (left <= 0) return;
        const int next = left < 4 ? left : 4;
        w += next * p.w_row, out += next;
        s = operands_after(s, next);
    }
}

OUT_OF_LINE void rows_by_4(const struct pulp_product *p, const struct rows *r, const W_T *filters, int channel) {
    each_group(p, r, filters, channel, 4);
}

OUT_OF_LINE void rows_by_2(const struct pulp_product *p, const struct rows *r, const W_T *filters, int channel) {
    each_group(p, r, filters, channel, 2);
}

OUT_OF_LINE void one_row(const struct pulp_product *p, const struct rows *r, const W_T *filters, int channel) {
    each_group(p, r, filters, channel, 1);
}

/* The product with so many filters. */
static inline struct pulp_product filters_of(const struct pulp_product *p, int filters) {
    struct pulp_product found = *p;
    found.filters = filters;
    return found;
}

/* Four filters or more. */
static inline void many(const struct pulp_product *p, struct rows *r, const W_T *w, int channel) {
    int rest = r->count;
    if (BY_FOUR && !has_rest(p) && rest >= 4) {
        r->count = rest & ~3;
        if (HAS_BLOCKS)
            rows_in_blocks(p, r, w, channel);
        else
            rows_by_4(p, r, w, channel);
        rest &= 3;
        skip_rows(r, rest);
    }
    r->count = rest & ~1;
    if (r->count) rows_by_2(p, r, w, channel);
    if (rest & 1) {
        skip_rows(r, 1);
        one_row(p, r, w, channel);
    }
}

/* Rows of y, whose first channel is `channel`; `r` has its last ones then. A last group of filters of partial products
 * that were completed by filters before it would add their products twice. */
static inline void product(const struct pulp_product *p, struct rows *r, const W_T *w, int channel) {
    if (IS_PARTIAL) {
        const struct pulp_product whole = filters_of(p, p->filters & ~3), rest = filters_of(p, p->filters & 3);
        if (rest.filters) {
            struct rows last = *r;
            last.y += whole.filters;
            few(&rest, &last, w + whole.filters * p->w_row, channel);
        }
        if (whole.filters) many(&whole, r, w, channel);
    } else if (p->filters < 4) {
        few(p, r, w, channel);
    } else {
        many(p, r, w, channel);
    }
}

#endif
