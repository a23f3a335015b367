/* Zero points of both operands of a product of bytes. The sum of (x - x_zero) * (w - w_zero) over the depth is the sum
 * of x * w, less w_zero times the sum of the row of x, less x_zero times the sum of the row of w, plus the depth times
 * both zero points. What belongs to a row of x is added to its accumulators, what belongs to a row of w takes the place
 * of the bias. */
#ifndef DEEPLOY_PULP_ZEROS_H
#define DEEPLOY_PULP_ZEROS_H

struct pulp_zeros {
    int x, w;                /* zero points */
    int32_t *rows, *filters; /* the calling core's own: room for a sum of every row of x and of w */
};

#endif

#if defined(ZEROS) && !defined(DEEPLOY_PULP_ROW_SUMS)
#define DEEPLOY_PULP_ROW_SUMS

enum { ONES = 0x01010101 };

/* The sum of a row's elements. */
#define SUM_OF_ROW(row, depth, OF_WORD)                                                      \
    const int words = (depth) >> 2, rest = (depth) & 3;                                      \
    int32_t sum = 0, other = 0;                                                              \
    int i = words;                                                                           \
    if (rest) other = OF_WORD(xp_load_end(row, depth, rest), other);                         \
    for (; i >= 4; i -= 4, (row) += 16) {                                                    \
        sum = OF_WORD(xp_load(row), sum), other = OF_WORD(xp_load((row) + 4), other);        \
        sum = OF_WORD(xp_load((row) + 8), sum), other = OF_WORD(xp_load((row) + 12), other); \
    }                                                                                        \
    for (; i > 0; i--, (row) += 4) sum = OF_WORD(xp_load(row), sum);                         \
    return sum + other;

#define OF_X(word, sum) dot4(word, ONES, sum)
#define OF_W(word, sum) dot4(ONES, word, sum)

static inline int32_t sum_of_x(const X_T *row, int depth) {
    SUM_OF_ROW(row, depth, OF_X)
}

static inline int32_t sum_of_w(const W_T *row, int depth){SUM_OF_ROW(row, depth, OF_W)}
#undef SUM_OF_ROW
#undef OF_X
#undef OF_W

/* What the zero point of w adds to the products of each row of x. */
OUT_OF_LINE void sum_rows(const struct pulp_zeros *z, struct rows r, int depth) {
    for (int i = 0; i < r.count; i++, r.x += r.x_step) z->rows[i] = -z->w * sum_of_x(r.x, depth);
}

/* What a filter with this sum of elements gets in place of its bias. */
static inline int32_t filter_sum(const struct pulp_product *p, const struct pulp_zeros *z, int channel, int32_t sum) {
    const int32_t both = p->depth * z->x * z->w - z->x * sum;
#ifdef BIAS_IS_ZERO
    (void)channel;
    return both;
#else
    return both + ((const int32_t *)p->epilogue.bias)[channel];
#endif
}

/* The same for filters from `channel` on. */
OUT_OF_LINE void sum_filters(const struct pulp_product *p, const struct pulp_zeros *z, const W_T *w, int channel,
                             int count) {
    for (int i = 0; i < count; i++, w += p->w_row)
        z->filters[channel + i] = filter_sum(p, z, channel + i, sum_of_w(w, p->depth));
}

/* The product with the filters' sums as biases. */
static inline struct pulp_product with_sums(struct pulp_product p, const struct pulp_zeros *z) {
    p.epilogue.bias = z->filters;
    return p;
}
#endif
