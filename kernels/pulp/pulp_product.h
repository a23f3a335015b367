/* Products of rows of x with rows of w, both dense along the depth: what matrix products and convolutions have in
 * common.
 *
 * Four rows of x and four of w at a time, in a hardware loop of 24 instructions for 64 multiply-accumulates; what is
 * left by two and four, 14 instructions for 32. Needs X_T and W_T: bytes, of one sign or x unsigned and w signed.
 * DEPTH_REST is defined where the depth is no multiple of 4, and DEPTH_VARIES too where it may be one; ZEROS where x
 * and w have zero points: then every row of x has a summand, and every filter one in place of its bias (see
 * pulp_zeros.h). PARTIAL: products are added to sums of 32 bits, which y are then (see pulp_sums.h). Where W_BITS is
 * defined, elements of w have as many bits (see pulp_words.h), and w_row counts their
 * bytes.
 */
#ifndef DEEPLOY_PULP_PRODUCT_H
#define DEEPLOY_PULP_PRODUCT_H

#if defined(ZEROS) && !defined(EPILOGUE_BIAS)
#define EPILOGUE_BIAS
#define BIAS_IS_ZERO
#endif
#include "pulp_epilogue.h"

struct pulp_product {
    int depth, filters; /* elements of a row, rows of w */
    int w_row;          /* from one row of w to the next, in elements of W_T */
    struct pulp_epilogue epilogue;
    struct pulp_requantisation requantisation;
};

#endif

#if defined(ACC_T) && !defined(DEEPLOY_PULP_DOTS)
#define DEEPLOY_PULP_DOTS

#include <stddef.h>

#include "pulp_dots.h"

/* What products become: sums of 32 bits, or what the epilogue makes of them. */
#ifdef PARTIAL
#define OUT_T int32_t
#define RESULT(acc, s, p) ((void)(s), (void)(p), (acc))
#define LEAVE(y, value) ((y) += (value))
#define IS_PARTIAL 1
#else
#define OUT_T Y_T
#define RESULT(acc, s, p) finish_with(acc, s, &(p)->epilogue, &(p)->requantisation)
#define LEAVE(y, value) ((y) = (Y_T)(value))
#define IS_PARTIAL 0
#endif

/* Some rows of x: where they begin, how far apart they lie, with RUNS of how many runs of as many words each row
 * consists, and how far it is from the end of one to the next, and with ZEROS what is added to the products of each. */
struct rows {
    const X_T *x;
    OUT_T *y;
    int x_step, y_step, count;
#ifdef RUNS
    int runs, words, skip;
#endif
#ifdef ZEROS
    const int32_t *sums;
#endif
};

#ifdef RUNS
#define RUNS_OF(r) (r).runs
#define SKIP_OF(r) (r).skip
#define WORDS_OF_RUN(p, r) (r).words
#else
#define RUNS_OF(r) 1
#define SKIP_OF(r) 0
#define WORDS_OF_RUN(p, r) ((p)->depth >> 2)
#endif

#ifdef ZEROS
#define SUMS(r) (r).sums
#define SKIP(sums, rows) ((sums) += (rows))
#define ROW_SUM(sums, row) (sums)[row]
#else
#define SUMS(r) (const int32_t *)0
#define SKIP(sums, rows) (void)0
#define ROW_SUM(sums, row) ((void)(sums), 0)
#endif

/* Whether a row has whole words: only one whose depth is no multiple of 4 may have none. */
#ifdef DEPTH_VARIES
#define HAS_REST(p) ((p)->depth & 3)
#define HAS_NO_REST(p) (((p)->depth & 3) == 0)
#elif defined(DEPTH_REST)
#define HAS_REST(p) 1
#define HAS_NO_REST(p) 0
#else
#define HAS_REST(p) 0
#define HAS_NO_REST(p) 1
#endif
#ifdef DEPTH_REST
#define WHOLE_WORDS(words) ((words) != 0)
#define REST(x, p) const uint32_t end_##x = xp_load_end(x, (p)->depth, (p)->depth & 3)
#define ADD_REST(acc, x, p, w) acc = dot4(end_##x, xp_load_end(w, (p)->depth, (p)->depth & 3), acc)
#else
#define WHOLE_WORDS(words) 1
#define REST(x, p) (void)0
#define ADD_REST(acc, x, p, w) (void)0
#endif

/* The epilogue of one accumulator of the `i`-th channel of a group. */
static inline int32_t finish(int32_t acc, int i, struct operands s, const struct pulp_product *p) {
    const struct stages stages = stages_of(s, i);
    return finish_with(acc, &stages, &p->epilogue, &p->requantisation);
}

static inline void finish_1(int32_t acc, OUT_T *y, int i, struct operands s, const struct pulp_product *p) {
    const struct stages stages = stages_of(s, i);
    LEAVE(y[i], RESULT(acc, &stages, p));
}

/* The second one is the same as the first where the step is 0. */
static inline void finish_2(int32_t a, int32_t b, OUT_T *y, int step, int i, struct operands s,
                            const struct pulp_product *p) {
    const struct stages stages = stages_of(s, i);
    const int32_t first = RESULT(a, &stages, p), second = RESULT(b, &stages, p);
    LEAVE(y[i], first);
    if (!IS_PARTIAL || step) LEAVE(y[step + i], second);
}

/* With ZEROS, accumulators of four rows begin with what is added to them. */
static inline void finish_4(int32_t a, int32_t b, int32_t c, int32_t d, OUT_T *y, int step, int i, struct operands s,
                            const struct pulp_product *p) {
    struct stages stages = stages_of(s, i);
#ifdef ZEROS
    stages.bias = 0;
#endif
    const int32_t first = RESULT(a, &stages, p), second = RESULT(b, &stages, p);
    const int32_t third = RESULT(c, &stages, p), fourth = RESULT(d, &stages, p);
    LEAVE(y[i], first), LEAVE(y[step + i], second), LEAVE(y[2 * step + i], third), LEAVE(y[3 * step + i], fourth);
}

#define DOTS(j, w) DOT("a" j, "t0", w) DOT("b" j, "t1", w) DOT("c" j, "t2", w) DOT("d" j, "t3", w)

/* Words of four rows of x and of w, which the given registers lead to: as many as the first place holds; with RUNS,
 * runs of them, whose number and distance lie in further places. */
#define ROW_WORDS(x_back) \
    WALK("t0", "x", "%[x_step]") WALK("t1", "x", "%[x_step]") WALK("t2", "x", "%[x_step]") WALK("t3", "x", x_back)
#define FILTER_WORD(register) WALK(register, "w", "%[w_step]")
#define FOUR_WORDS(x_back, w_back) \
    ROW_WORDS(x_back)              \
    FILTER_WORD("t4")              \
    FILTER_WORD("t5")              \
    DOTS("0", "t4") FILTER_WORD("t4") DOTS("1", "t5") WALK("t5", "w", w_back) DOTS("2", "t4") DOTS("3", "t5")
#ifdef RUNS
#define ROWS_OF_WORDS(words, runs, skip, x_back, w_back)                                \
    "lw t1, " runs "\n.insn i 0x7b, 4, x1, t1, 2*28\nlw t0, " words "\n" LOOP("t0", 24) \
        FOUR_WORDS(x_back, w_back) "lw t0, " skip "\nadd %[x], %[x], t0\n"
#else
#define ROWS_OF_WORDS(words, runs, skip, x_back, w_back) "lw t0, " words "\n" LOOP("t0", 24) FOUR_WORDS(x_back, w_back)
#endif

/* What sixteen accumulators begin with: nothing, or the sums of their rows and filters, whose places are in the
 * registers of two of them. */
#ifdef ZEROS
#define START_PLACES(filters, rows, s, sums) ((filters) = (int32_t)(s).bias, (rows) = (int32_t)(sums))
#define FILTER_SUM(s, i) (s).bias[i]
#define START_OF(j, sum) \
    "add %[a" j "], t0, " sum "\nadd %[b" j "], t1, " sum "\nadd %[c" j "], t2, " sum "\nadd %[d" j "], t3, " sum "\n"
#define STARTS                                                                                                        \
    "lw t0, 0(%[d3])\nlw t1, 4(%[d3])\nlw t2, 8(%[d3])\nlw t3, 12(%[d3])\nlw t4, 0(%[c3])\nlw t5, "                   \
    "4(%[c3])\n" START_OF("0", "t4") "lw t4, 8(%[c3])\n" START_OF("1", "t5") "lw t5, 12(%[c3])\n" START_OF("2", "t4") \
        START_OF("3", "t5")
#else
#define START_PLACES(filters, rows, s, sums) ((void)(sums), (filters) = (rows) = 0)
#define FILTER_SUM(s, i) 0
#define START_OF(j) "li %[a" j "], 0\nli %[b" j "], 0\nli %[c" j "], 0\nli %[d" j "], 0\n"
#define STARTS START_OF("0") START_OF("1") START_OF("2") "li %[a3], 0\nli %[b3], 0\n"
#endif

#ifdef W_BITS
#include "pulp_packed.h"
#else
/* Four rows at a time want sixteen accumulators besides what leads to them, for which clang finds no registers. */
#if !defined(XPULP_INSN) || !defined(__clang__)
#define BY_FOUR
/* Four rows of x and of w; `s` are the operands of the first of four channels. */
static inline void block_4x4(const struct pulp_product *p, const struct rows *r, const X_T *x, const W_T *w, OUT_T *y,
                             const int32_t *sums, struct operands s) {
    const int words = WORDS_OF_RUN(p, *r), runs = RUNS_OF(*r), skip = SKIP_OF(*r), x_step = r->x_step;
#ifdef XPULP_INSN
    int32_t a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3;
    START_PLACES(c3, d3, s, sums);
    __asm__ volatile(
        BEGIN STARTS ROWS_OF_WORDS("%[words]", "%[runs]", "%[skip]", "%[x_back]", "%[w_back]") END
        : [a0] "=&r"(a0), [a1] "=&r"(a1), [a2] "=&r"(a2), [a3] "=&r"(a3), [b0] "=&r"(b0), [b1] "=&r"(b1),
          [b2] "=&r"(b2), [b3] "=&r"(b3), [c0] "=&r"(c0), [c1] "=&r"(c1), [c2] "=&r"(c2), [c3] "+r"(c3), [d0] "=&r"(d0),
          [d1] "=&r"(d1), [d2] "=&r"(d2), [d3] "+r"(d3), [x] "+r"(x), [w] "+r"(w)
        : [words] "m"(words), [runs] "m"(runs), [skip] "m"(skip), [x_step] "r"(x_step), [x_back] "r"(4 - 3 * x_step),
          [w_step] "r"(p->w_row), [w_back] "r"(4 - 3 * p->w_row), [sdot] "i"(SDOT)
        : "t0", "t1", "t2", "t3", "t4", "t5", "memory");
#else
    const int32_t of_a = ROW_SUM(sums, 0), of_b = ROW_SUM(sums, 1), of_c = ROW_SUM(sums, 2), of_d = ROW_SUM(sums, 3);
    const int32_t of_0 = FILTER_SUM(s, 0), of_1 = FILTER_SUM(s, 1), of_2 = FILTER_SUM(s, 2), of_3 = FILTER_SUM(s, 3);
    int32_t a0 = of_a + of_0, a1 = of_a + of_1, a2 = of_a + of_2, a3 = of_a + of_3;
    int32_t b0 = of_b + of_0, b1 = of_b + of_1, b2 = of_b + of_2, b3 = of_b + of_3;
    int32_t c0 = of_c + of_0, c1 = of_c + of_1, c2 = of_c + of_2, c3 = of_c + of_3;
    int32_t d0 = of_d + of_0, d1 = of_d + of_1, d2 = of_d + of_2, d3 = of_d + of_3;
    for (int i = 0; i < runs * words; i++, x += 4, w += 4) {
        if (i && i % words == 0) x += skip;
        const uint32_t p0 = xp_load(x), p1 = xp_load(x + x_step), p2 = xp_load(x + 2 * x_step),
                       p3 = xp_load(x + 3 * x_step);
        const uint32_t v0 = xp_load(w), v1 = xp_load(w + p->w_row), v2 = xp_load(w + 2 * p->w_row),
                       v3 = xp_load(w + 3 * p->w_row);
        a0 = dot4(p0, v0, a0), a1 = dot4(p0, v1, a1), a2 = dot4(p0, v2, a2), a3 = dot4(p0, v3, a3);
        b0 = dot4(p1, v0, b0), b1 = dot4(p1, v1, b1), b2 = dot4(p1, v2, b2), b3 = dot4(p1, v3, b3);
        c0 = dot4(p2, v0, c0), c1 = dot4(p2, v1, c1), c2 = dot4(p2, v2, c2), c3 = dot4(p2, v3, c3);
        d0 = dot4(p3, v0, d0), d1 = dot4(p3, v1, d1), d2 = dot4(p3, v2, d2), d3 = dot4(p3, v3, d3);
    }
#endif
    finish_4(a0, b0, c0, d0, y, r->y_step, 0, s, p), finish_4(a1, b1, c1, d1, y, r->y_step, 1, s, p);
    finish_4(a2, b2, c2, d2, y, r->y_step, 2, s, p), finish_4(a3, b3, c3, d3, y, r->y_step, 3, s, p);
}
#endif

/* Two rows of x. */
static inline void block_2x4(const struct pulp_product *p, const struct rows *r, const X_T *x0, const W_T *w0, OUT_T *y,
                             const int32_t *sums, struct operands s) {
    const X_T *x1 = x0 + r->x_step;
    const W_T *w1 = w0 + p->w_row, *w2 = w1 + p->w_row, *w3 = w2 + p->w_row;
    const int words = WORDS_OF_RUN(p, *r), y_step = r->y_step;
    int32_t a0 = ROW_SUM(sums, 0), a1 = a0, a2 = a0, a3 = a0, b0 = ROW_SUM(sums, 1), b1 = b0, b2 = b0, b3 = b0;
    if (HAS_REST(p)) {
        REST(x0, p);
        REST(x1, p);
        ADD_REST(a0, x0, p, w0), ADD_REST(a1, x0, p, w1), ADD_REST(a2, x0, p, w2), ADD_REST(a3, x0, p, w3);
        ADD_REST(b0, x1, p, w0), ADD_REST(b1, x1, p, w1), ADD_REST(b2, x1, p, w2), ADD_REST(b3, x1, p, w3);
    }
#ifdef XPULP_INSN
    for (int run = RUNS_OF(*r); run > 0 && WHOLE_WORDS(words); run--, x0 += SKIP_OF(*r), x1 += SKIP_OF(*r)) {
        __asm__ volatile(
            BEGIN LOOP("%[n]", 14) LOAD("t0", "x0") LOAD("t1", "x1") LOAD("t2", "w0") LOAD("t3", "w1") LOAD("t4", "w2")
                LOAD("t5", "w3") DOT("a0", "t0", "t2") DOT("b0", "t1", "t2") DOT("a1", "t0", "t3") DOT("b1", "t1", "t3")
                    DOT("a2", "t0", "t4") DOT("b2", "t1", "t4") DOT("a3", "t0", "t5") DOT("b3", "t1", "t5") END
            : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [b0] "+r"(b0), [b1] "+r"(b1), [b2] "+r"(b2),
              [b3] "+r"(b3), [x0] "+r"(x0), [x1] "+r"(x1), [w0] "+r"(w0), [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3)
            : [n] "r"(words), [sdot] "i"(SDOT)
            : "t0", "t1", "t2", "t3", "t4", "t5", "memory");
    }
#else
    for (int i = 0; i < RUNS_OF(*r) * words; i++, x0 += 4, x1 += 4, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
        if (i && i % words == 0) x0 += SKIP_OF(*r), x1 += SKIP_OF(*r);
        const uint32_t p0 = xp_load(x0), p1 = xp_load(x1);
        const uint32_t v0 = xp_load(w0), v1 = xp_load(w1), v2 = xp_load(w2), v3 = xp_load(w3);
        a0 = dot4(p0, v0, a0), a1 = dot4(p0, v1, a1), a2 = dot4(p0, v2, a2), a3 = dot4(p0, v3, a3);
        b0 = dot4(p1, v0, b0), b1 = dot4(p1, v1, b1), b2 = dot4(p1, v2, b2), b3 = dot4(p1, v3, b3);
    }
#endif
    finish_2(a0, b0, y, y_step, 0, s, p), finish_2(a1, b1, y, y_step, 1, s, p);
    finish_2(a2, b2, y, y_step, 2, s, p), finish_2(a3, b3, y, y_step, 3, s, p);
}

/* One row of x. */
static inline void block_1x4(const struct pulp_product *p, const struct rows *r, const X_T *x, const W_T *w0, OUT_T *y,
                             const int32_t *sums, struct operands s) {
    const W_T *w1 = w0 + p->w_row, *w2 = w1 + p->w_row, *w3 = w2 + p->w_row;
    const int words = WORDS_OF_RUN(p, *r);
    (void)r;
    int32_t a0 = ROW_SUM(sums, 0), a1 = a0, a2 = a0, a3 = a0;
    if (HAS_REST(p)) {
        REST(x, p);
        ADD_REST(a0, x, p, w0), ADD_REST(a1, x, p, w1), ADD_REST(a2, x, p, w2), ADD_REST(a3, x, p, w3);
    }
#ifdef XPULP_INSN
    for (int run = RUNS_OF(*r); run > 0 && WHOLE_WORDS(words); run--, x += SKIP_OF(*r)) {
        __asm__ volatile(BEGIN LOOP("%[n]", 9) LOAD("t0", "x") LOAD("t1", "w0") LOAD("t2", "w1") LOAD("t3", "w2")
                             LOAD("t4", "w3") DOT("a0", "t0", "t1") DOT("a1", "t0", "t2") DOT("a2", "t0", "t3")
                                 DOT("a3", "t0", "t4") END
                         : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [x] "+r"(x), [w0] "+r"(w0),
                           [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3)
                         : [n] "r"(words), [sdot] "i"(SDOT)
                         : "t0", "t1", "t2", "t3", "t4", "memory");
    }
#else
    for (int i = 0; i < RUNS_OF(*r) * words; i++, x += 4, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
        if (i && i % words == 0) x += SKIP_OF(*r);
        const uint32_t p0 = xp_load(x);
        a0 = dot4(p0, xp_load(w0), a0), a1 = dot4(p0, xp_load(w1), a1), a2 = dot4(p0, xp_load(w2), a2),
        a3 = dot4(p0, xp_load(w3), a3);
    }
#endif
    finish_1(a0, y, 0, s, p), finish_1(a1, y, 1, s, p), finish_1(a2, y, 2, s, p), finish_1(a3, y, 3, s, p);
}

/* Two rows of x by two filters, the same twice where there is but one: 8 instructions for 16 multiply-accumulates. */
static inline void block_2x2(const struct pulp_product *p, const struct rows *r, const X_T *x0, int is_two,
                             const W_T *w0, int w_step, OUT_T *y, const int32_t *sums, int channel) {
    const int x_step = is_two ? r->x_step : 0, y_step = is_two ? r->y_step : 0;
    const X_T *x1 = x0 + x_step;
    const W_T *w1 = w0 + w_step;
    const int words = WORDS_OF_RUN(p, *r), next = w_step != 0;
    const struct operands s = operands_at(&p->epilogue, &p->requantisation, channel);
    int32_t a0 = ROW_SUM(sums, 0), a1 = a0, b0 = ROW_SUM(sums, is_two), b1 = b0;
    if (HAS_REST(p)) {
        REST(x0, p);
        REST(x1, p);
        ADD_REST(a0, x0, p, w0), ADD_REST(a1, x0, p, w1), ADD_REST(b0, x1, p, w0), ADD_REST(b1, x1, p, w1);
    }
#ifdef XPULP_INSN
    for (int run = RUNS_OF(*r); run > 0 && WHOLE_WORDS(words); run--, x0 += SKIP_OF(*r), x1 += SKIP_OF(*r)) {
        __asm__ volatile(BEGIN LOOP("%[n]", 8) LOAD("t0", "x0") LOAD("t1", "x1") LOAD("t2", "w0") LOAD("t3", "w1")
                             DOT("a0", "t0", "t2") DOT("b0", "t1", "t2") DOT("a1", "t0", "t3") DOT("b1", "t1", "t3") END
                         : [a0] "+r"(a0), [a1] "+r"(a1), [b0] "+r"(b0), [b1] "+r"(b1), [x0] "+r"(x0), [x1] "+r"(x1),
                           [w0] "+r"(w0), [w1] "+r"(w1)
                         : [n] "r"(words), [sdot] "i"(SDOT)
                         : "t0", "t1", "t2", "t3", "memory");
    }
#else
    for (int i = 0; i < RUNS_OF(*r) * words; i++, x0 += 4, x1 += 4, w0 += 4, w1 += 4) {
        if (i && i % words == 0) x0 += SKIP_OF(*r), x1 += SKIP_OF(*r);
        const uint32_t p0 = xp_load(x0), p1 = xp_load(x1), v0 = xp_load(w0), v1 = xp_load(w1);
        a0 = dot4(p0, v0, a0), a1 = dot4(p0, v1, a1), b0 = dot4(p1, v0, b0), b1 = dot4(p1, v1, b1);
    }
#endif
    finish_2(a0, b0, y, y_step, 0, s, p);
    if (!IS_PARTIAL || next) finish_2(a1, b1, y, y_step, next, s, p);
}
#endif

/* All rows, fewer than four filters. */
OUT_OF_LINE void few(const struct pulp_product *given, const struct rows *given_rows, const W_T *filters, int channel) {
    const struct pulp_product p = *given;
    const struct rows r = *given_rows;
    for (int j = 0; j < p.filters; j += 2) {
        const int w_step = j + 1 < p.filters ? p.w_row : 0;
        const X_T *x = r.x;
        OUT_T *y = r.y + j;
        const int32_t *sums = SUMS(r);
        for (int i = 0; i < r.count; i += 2, x += 2 * r.x_step, y += 2 * r.y_step, SKIP(sums, 2)) {
            block_2x2(&p, &r, x, i + 1 < r.count, filters + j * p.w_row, w_step, y, sums, channel + j);
        }
    }
}

/* Forms of the epilogue that assembly has registers for. */
#if defined(XP_STAGES_OF_2) && defined(BY_FOUR) && !defined(PARTIAL)
#include "pulp_block.h"
#define HAS_BLOCKS (sizeof(Y_T) == 1)
#else
#define HAS_BLOCKS 0
#define rows_in_blocks rows_by_4 /* never called */
#endif
#undef START_PLACES
#undef START_OF
#undef STARTS
#undef FILTER_SUM
#undef REST
#undef ADD_REST
#undef DOTS
#undef FOUR_WORDS
#undef ROWS_OF_WORDS

/* All filters, four at a time: the body sees `w`, `s` and the first channel's `out`. A last group of fewer than four is
 * completed by filters before it. The product is copied: what lies in memory would be read again after every store to
 * y. */
#define EACH_GROUP(given, given_rows, filters_, channel, ...)                 \
    const struct pulp_product p = *(given);                                   \
    const struct rows r = *(given_rows);                                      \
    struct operands s = operands_at(&p.epilogue, &p.requantisation, channel); \
    const W_T *w = (filters_);                                                \
    OUT_T *out = r.y;                                                         \
    for (int left = p.filters;;) {                                            \
        __VA_ARGS__                                                           \
        left -= 4;                                                            \
        if (left <= 0) return;                                                \
        const int next = left < 4 ? left : 4;                                 \
        w += next * p.w_row, out += next;                                     \
        s = operands_after(s, next);                                          \
    }

#ifdef BY_FOUR
OUT_OF_LINE void rows_by_4(const struct pulp_product *given, const struct rows *all, const W_T *filters, int channel){
    EACH_GROUP(given, all, filters, channel,
               {
                   const X_T *x = r.x;
                   OUT_T *y = out;
                   const int32_t *sums = SUMS(r);
                   for (int i = r.count; i > 0; i -= 4, x += 4 * r.x_step, y += 4 * r.y_step, SKIP(sums, 4))
                       block_4x4(&p, &r, x, w, y, sums, s);
               })}
#endif

OUT_OF_LINE void rows_by_2(const struct pulp_product *given, const struct rows *all, const W_T *filters, int channel){
    EACH_GROUP(given, all, filters, channel,
               {
                   const X_T *x = r.x;
                   OUT_T *y = out;
                   const int32_t *sums = SUMS(r);
                   for (int i = r.count; i > 0; i -= 2, x += 2 * r.x_step, y += 2 * r.y_step, SKIP(sums, 2))
                       block_2x4(&p, &r, x, w, y, sums, s);
               })}

OUT_OF_LINE void one_row(const struct pulp_product *given, const struct rows *all, const W_T *filters, int channel) {
    EACH_GROUP(given, all, filters, channel, { block_1x4(&p, &r, r.x, w, out, SUMS(r), s); })
}
#undef EACH_GROUP

#ifdef PARTIAL
/* The product with so many filters. */
static inline struct pulp_product filters_of(const struct pulp_product *p, int filters) {
    struct pulp_product found = *p;
    found.filters = filters;
    return found;
}
#endif

/* Rows of y, whose first channel is `channel`. */
static inline void product(const struct pulp_product *p, struct rows r, const W_T *w, int channel) {
#ifdef PARTIAL /* a last group that were completed by filters before it would add their products twice */
    const struct pulp_product whole = filters_of(p, p->filters & ~3), rest_of = filters_of(p, p->filters & 3);
    if (rest_of.filters) {
        struct rows last = r;
        last.y += whole.filters;
        few(&rest_of, &last, w + whole.filters * p->w_row, channel);
    }
    if (!whole.filters) return;
    p = &whole;
#endif
    if (p->filters < 4) {
        few(p, &r, w, channel);
        return;
    }
    int rest = r.count;
#ifdef BY_FOUR
    if (HAS_NO_REST(p) && rest >= 4) {
        r.count = rest & ~3;
        if (HAS_BLOCKS)
            rows_in_blocks(p, &r, w, channel);
        else
            rows_by_4(p, &r, w, channel);
        SKIP(SUMS(r), r.count);
        r.x += r.count * r.x_step, r.y += r.count * r.y_step, rest &= 3;
    }
#endif
    r.count = rest & ~1;
    if (r.count) rows_by_2(p, &r, w, channel);
    if (rest & 1) {
        SKIP(SUMS(r), r.count);
        r.x += r.count * r.x_step, r.y += r.count * r.y_step, r.count = 1;
        one_row(p, &r, w, channel);
    }
}
#endif
