/* Sums of rows of x and of w, for products of operands with zero points: 8 instructions for a word of four rows each.
 * Sources that include it have pulp_product.h's rows. */
#ifndef DEEPLOY_PULP_ROW_SUMS_H
#define DEEPLOY_PULP_ROW_SUMS_H

#include "pulp_result.h"
#include "pulp_zeros.h"

enum { ONES = 0x01010101 };

/* Four bytes of x, or of w, times one. */
static inline int32_t sum_word(int is_x, uint32_t word, int32_t sum) {
    return is_x ? dot4(word, ONES, sum) : dot4(ONES, word, sum);
}

/* An instruction of the block below: products of bytes with ones, by the signs of both. */
#define ADD_ONES(sum, word)                                                        \
    EITHER("%[is_x]", ".insn r 0x57, 1, %[sdot], %[" sum "], " word ", %[ones]\n", \
           ".insn r 0x57, 1, %[sdot], %[" sum "], %[ones], " word "\n")

/* The sums of the elements of four rows of x or w, `step` bytes apart. */
FOLDED void sum_4(int is_x, const void *first, int step, int depth, int32_t sums[4]) {
    const int words = depth >> 2, rest = depth & 3;
    const uint8_t *row = first;
    int32_t a = 0, b = 0, c = 0, d = 0;
    if (rest) {
        a = sum_word(is_x, xp_load_end(row, depth, rest), 0);
        b = sum_word(is_x, xp_load_end(row + step, depth, rest), 0);
        c = sum_word(is_x, xp_load_end(row + 2 * step, depth, rest), 0);
        d = sum_word(is_x, xp_load_end(row + 3 * step, depth, rest), 0);
    }
    if (XPULP_INSN && words) {
        XP_BLOCK(BEGIN LOOP("%[n]", 8) WALK("t0", "row", "%[step]") WALK("t1", "row", "%[step]")
                     WALK("t2", "row", "%[step]") WALK("t3", "row", "%[back]") ADD_ONES("a", "t0") ADD_ONES("b", "t1")
                         ADD_ONES("c", "t2") ADD_ONES("d", "t3") END : [row] "+r"(row),
                 [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d) : [n] "r"(words), [step] "r"(step),
                 [back] "r"(4 - 3 * step), [ones] "r"(ONES), [sdot] "i"(SDOT), [is_x] "i"(is_x) : "t0", "t1", "t2",
                 "t3", "memory");
    }
    for (int i = 0; i < words && !XPULP_INSN; i++, row += 4) {
        a = sum_word(is_x, xp_load(row), a), b = sum_word(is_x, xp_load(row + step), b);
        c = sum_word(is_x, xp_load(row + 2 * step), c), d = sum_word(is_x, xp_load(row + 3 * step), d);
    }
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
}

/* How many rows of `count` are added up together, how far apart they lie, and the first of those from `next` on: four,
 * of which the last four may begin earlier; each of fewer rows alone. */
struct together {
    int each, step, first;
};

static inline struct together together_from(int next, int count, int step) {
    if (count < 4) return (struct together){1, 0, next};
    return (struct together){4, step, next + 4 <= count ? next : count - 4};
}

/* What the zero point of w adds to the products of each row of x. */
OUT_OF_LINE void sum_rows(const struct pulp_zeros *z, const struct rows *given, int depth) {
    const struct rows r = *given;
    int32_t sums[4];
    for (int next = 0; next < r.count; next += r.count < 4 ? 1 : 4) {
        const struct together t = together_from(next, r.count, r.x_step);
        sum_4(1, r.x + t.first * r.x_step, t.step, depth, sums);
        for (int i = 0; i < t.each; i++) z->rows[t.first + i] = -z->w * sums[i];
    }
}

/* What a filter with this sum of elements gets in place of its bias. */
static inline int32_t filter_sum(const struct pulp_product *p, const struct pulp_zeros *z, int channel, int32_t sum) {
    const int32_t both = p->depth * z->x * z->w - z->x * sum;
    return HAS_BIAS ? both + ((const int32_t *)p->epilogue.bias)[channel] : both;
}

/* The same for filters from `channel` on. */
OUT_OF_LINE void sum_filters(const struct pulp_product *p, const struct pulp_zeros *z, const W_T *w, int channel,
                             int count) {
    int32_t sums[4];
    for (int next = 0; next < count; next += count < 4 ? 1 : 4) {
        const struct together t = together_from(next, count, p->w_row);
        sum_4(0, w + t.first * p->w_row, t.step, p->depth, sums);
        for (int i = 0; i < t.each; i++) {
            const int filter = channel + t.first + i;
            z->filters[filter] = filter_sum(p, z, filter, sums[i]);
        }
    }
}

/* The product with the filters' sums as biases. */
static inline struct pulp_product with_sums(struct pulp_product p, const struct pulp_zeros *z) {
    p.epilogue.bias = z->filters;
    return p;
}

#endif
