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

/* The sums of the elements of four rows, `step` apart: 8 instructions for a word of each. */
#ifdef XPULP_INSN
#define ADD(sum, word) ".insn r 0x57, 1, %[sdot], %[" sum "], " SDOT_OPERANDS(word) "\n"
#define WORDS_OF_4                                                                                                     \
    if (words)                                                                                                         \
        __asm__ volatile(                                                                                              \
            BEGIN LOOP("%[n]", 8) WALK("t0", "row", "%[step]") WALK("t1", "row", "%[step]")                            \
                WALK("t2", "row", "%[step]") WALK("t3", "row", "%[back]") ADD("a", "t0") ADD("b", "t1") ADD("c", "t2") \
                    ADD("d", "t3") END                                                                                 \
            : [row] "+r"(row), [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d)                                      \
            : [n] "r"(words), [step] "r"(step), [back] "r"(4 - 3 * step), [ones] "r"(ONES), [sdot] "i"(SDOT)           \
            : "t0", "t1", "t2", "t3", "memory");
#else
#define WORDS_OF_4                                                                        \
    for (int i = 0; i < words; i++, row += 4) {                                           \
        a = OF_WORD(xp_load(row), a), b = OF_WORD(xp_load(row + step), b);                \
        c = OF_WORD(xp_load(row + 2 * step), c), d = OF_WORD(xp_load(row + 3 * step), d); \
    }
#endif
#define SUM_OF_4                                                                                             \
    const int words = depth >> 2, rest = depth & 3;                                                          \
    int32_t a = 0, b = 0, c = 0, d = 0;                                                                      \
    if (rest) {                                                                                              \
        a = OF_WORD(xp_load_end(row, depth, rest), 0), b = OF_WORD(xp_load_end(row + step, depth, rest), 0); \
        c = OF_WORD(xp_load_end(row + 2 * step, depth, rest), 0),                                            \
        d = OF_WORD(xp_load_end(row + 3 * step, depth, rest), 0);                                            \
    }                                                                                                        \
    WORDS_OF_4 sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;

#define OF_WORD(word, sum) dot4(word, ONES, sum)
#define SDOT_OPERANDS(word) word ", %[ones]"
static inline void sum_4_of_x(const X_T *row, int step, int depth, int32_t sums[4]){SUM_OF_4}
#undef OF_WORD
#undef SDOT_OPERANDS
#define OF_WORD(word, sum) dot4(ONES, word, sum)
#define SDOT_OPERANDS(word) "%[ones], " word
static inline void sum_4_of_w(const W_T *row, int step, int depth, int32_t sums[4]){SUM_OF_4}
#undef OF_WORD
#undef SDOT_OPERANDS
#undef SUM_OF_4
#undef WORDS_OF_4
#undef ADD

/* Four rows at a time, of which the last four may begin earlier; each of fewer rows alone. The body sees `first`, the
 * distance `step` of those that are added up together, and `each`, their number. */
#define EACH_4(count, distance, ...)                                           \
    const int each = (count) < 4 ? 1 : 4, step = (count) < 4 ? 0 : (distance); \
    for (int next = 0; next < (count); next += each) {                         \
        const int first = next + each <= (count) ? next : (count) - each;      \
        int32_t sums[4];                                                       \
        __VA_ARGS__                                                            \
    }

/* What the zero point of w adds to the products of each row of x. */
OUT_OF_LINE void sum_rows(const struct pulp_zeros *z, struct rows r, int depth) {
    EACH_4(r.count, r.x_step, {
        sum_4_of_x(r.x + first * r.x_step, step, depth, sums);
        for (int i = 0; i < each; i++) z->rows[first + i] = -z->w * sums[i];
    })
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
    EACH_4(count, p->w_row, {
        sum_4_of_w(w + first * p->w_row, step, p->depth, sums);
        for (int i = 0; i < each; i++) z->filters[channel + first + i] = filter_sum(p, z, channel + first + i, sums[i]);
    })
}
#undef EACH_4

/* The product with the filters' sums as biases. */
static inline struct pulp_product with_sums(struct pulp_product p, const struct pulp_zeros *z) {
    p.epilogue.bias = z->filters;
    return p;
}
#endif
