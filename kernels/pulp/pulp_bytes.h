/* Products of blocks of rows of bytes: four rows of x and four of w at a time, in a hardware loop of 24 instructions
 * for 64 multiply-accumulates; of two rows of x 14 for 32, of one 9 for 16; of two rows of both 8 for 16. */
#ifndef DEEPLOY_PULP_BYTES_H
#define DEEPLOY_PULP_BYTES_H

enum { IS_PACKED = 0 };
#include "pulp_result.h"

/* Four rows at a time want sixteen accumulators besides what leads to them, for which clang finds no registers. */
enum { BY_FOUR = !(XPULP_INSN && IS_CLANG) };

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
#define ROWS_OF_WORDS(words, runs, skip, x_back, w_back)                                             \
    IF(HAS_RUNS, "lw t1, " runs "\n.insn i 0x7b, 4, x1, t1, 2*28\n")                                 \
    "lw t0, " words "\n" LOOP("t0", 24) FOUR_WORDS(x_back, w_back) IF(HAS_RUNS, "lw t0, " skip       \
                                                                                "\nadd %[x], %[x], " \
                                                                                "t0\n")

/* What sixteen accumulators begin with: nothing, or with ZEROS the sums of their rows and filters, whose places are in
 * the registers of two of them. */
#define ADDED_UP(j, sum) \
    "add %[a" j "], t0, " sum "\nadd %[b" j "], t1, " sum "\nadd %[c" j "], t2, " sum "\nadd %[d" j "], t3, " sum "\n"
#define STARTS_WITH_SUMS                                                                                              \
    "lw t0, 0(%[d3])\nlw t1, 4(%[d3])\nlw t2, 8(%[d3])\nlw t3, 12(%[d3])\nlw t4, 0(%[c3])\nlw t5, "                   \
    "4(%[c3])\n" ADDED_UP("0", "t4") "lw t4, 8(%[c3])\n" ADDED_UP("1", "t5") "lw t5, 12(%[c3])\n" ADDED_UP("2", "t4") \
        ADDED_UP("3", "t5")
#define NOTHING(j) "li %[a" j "], 0\nli %[b" j "], 0\nli %[c" j "], 0\nli %[d" j "], 0\n"
#define STARTS_WITH_NOTHING NOTHING("0") NOTHING("1") NOTHING("2") "li %[a3], 0\nli %[b3], 0\n"

/* The last bytes of a row, as a word. */
static inline uint32_t end_of(const void *row, const struct pulp_product *p) {
    return xp_load_end(row, p->depth, p->depth & 3);
}

/* Four rows of x and of w; `s` are the operands of the first of four channels. */
static inline void block_4x4(const struct pulp_product *p, const struct rows *r, const X_T *x, const W_T *w, OUT_T *y,
                             const int32_t *sums, struct operands s) {
    const int words = words_of_run(p, r), runs = runs_of(r), skip = skip_of(r), x_step = r->x_step;
    int32_t a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3;
    if (XPULP_INSN) {
        c3 = ZEROS ? (int32_t)(uintptr_t)s.bias : 0, d3 = ZEROS ? (int32_t)(uintptr_t)sums : 0;
        XP_BLOCK(BEGIN EITHER(HAS_ZEROS, STARTS_WITH_SUMS, STARTS_WITH_NOTHING)
                     ROWS_OF_WORDS("%[words]", "%[runs]", "%[skip]", "%[x_back]", "%[w_back]") END : [a0] "=&r"(a0),
                 [a1] "=&r"(a1), [a2] "=&r"(a2), [a3] "=&r"(a3), [b0] "=&r"(b0), [b1] "=&r"(b1), [b2] "=&r"(b2),
                 [b3] "=&r"(b3), [c0] "=&r"(c0), [c1] "=&r"(c1), [c2] "=&r"(c2), [c3] "+r"(c3), [d0] "=&r"(d0),
                 [d1] "=&r"(d1), [d2] "=&r"(d2), [d3] "+r"(d3), [x] "+r"(x), [w] "+r"(w) : [words] "m"(words),
                 [runs] "m"(runs), [skip] "m"(skip), [x_step] "r"(x_step), [x_back] "r"(4 - 3 * x_step),
                 [w_step] "r"(p->w_row), [w_back] "r"(4 - 3 * p->w_row), [sdot] "i"(SDOT_WITH_FLAGS) : "t0", "t1", "t2",
                 "t3", "t4", "t5", "memory");
    } else {
        const int32_t of_0 = ZEROS ? s.bias[0] : 0, of_1 = ZEROS ? s.bias[1] : 0, of_2 = ZEROS ? s.bias[2] : 0;
        const int32_t of_3 = ZEROS ? s.bias[3] : 0, of_a = row_sum(sums, 0), of_b = row_sum(sums, 1);
        const int32_t of_c = row_sum(sums, 2), of_d = row_sum(sums, 3);
        a0 = of_a + of_0, a1 = of_a + of_1, a2 = of_a + of_2, a3 = of_a + of_3;
        b0 = of_b + of_0, b1 = of_b + of_1, b2 = of_b + of_2, b3 = of_b + of_3;
        c0 = of_c + of_0, c1 = of_c + of_1, c2 = of_c + of_2, c3 = of_c + of_3;
        d0 = of_d + of_0, d1 = of_d + of_1, d2 = of_d + of_2, d3 = of_d + of_3;
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
    }
    finish_4(a0, b0, c0, d0, y, r->y_step, 0, s, p), finish_4(a1, b1, c1, d1, y, r->y_step, 1, s, p);
    finish_4(a2, b2, c2, d2, y, r->y_step, 2, s, p), finish_4(a3, b3, c3, d3, y, r->y_step, 3, s, p);
}

/* Two rows of x. */
static inline void block_2x4(const struct pulp_product *p, const struct rows *r, const X_T *x0, const W_T *w0, OUT_T *y,
                             const int32_t *sums, struct operands s) {
    const X_T *x1 = x0 + r->x_step;
    const W_T *w1 = w0 + p->w_row, *w2 = w1 + p->w_row, *w3 = w2 + p->w_row;
    const int words = words_of_run(p, r), y_step = r->y_step;
    int32_t a0 = row_sum(sums, 0), a1 = a0, a2 = a0, a3 = a0, b0 = row_sum(sums, 1), b1 = b0, b2 = b0, b3 = b0;
    if (has_rest(p)) {
        const uint32_t p0 = end_of(x0, p), p1 = end_of(x1, p);
        a0 = dot4(p0, end_of(w0, p), a0), a1 = dot4(p0, end_of(w1, p), a1);
        a2 = dot4(p0, end_of(w2, p), a2), a3 = dot4(p0, end_of(w3, p), a3);
        b0 = dot4(p1, end_of(w0, p), b0), b1 = dot4(p1, end_of(w1, p), b1);
        b2 = dot4(p1, end_of(w2, p), b2), b3 = dot4(p1, end_of(w3, p), b3);
    }
    for (int run = runs_of(r); run > 0 && has_words(words); run--, x0 += skip_of(r), x1 += skip_of(r)) {
        XP_BLOCK(BEGIN LOOP("%[n]", 14) XP_LOAD("t0", "x0") XP_LOAD("t1", "x1") XP_LOAD("t2", "w0") XP_LOAD("t3", "w1")
                     XP_LOAD("t4", "w2") XP_LOAD("t5", "w3") DOT("a0", "t0", "t2") DOT("b0", "t1", "t2")
                         DOT("a1", "t0", "t3") DOT("b1", "t1", "t3") DOT("a2", "t0", "t4") DOT("b2", "t1", "t4")
                             DOT("a3", "t0", "t5") DOT("b3", "t1", "t5") END : [a0] "+r"(a0),
                 [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [b0] "+r"(b0), [b1] "+r"(b1), [b2] "+r"(b2),
                 [b3] "+r"(b3), [x0] "+r"(x0), [x1] "+r"(x1), [w0] "+r"(w0), [w1] "+r"(w1), [w2] "+r"(w2),
                 [w3] "+r"(w3) : [n] "r"(words), [sdot] "i"(SDOT) : "t0", "t1", "t2", "t3", "t4", "t5", "memory");
        for (int i = 0; i < words && !XPULP_INSN; i++, x0 += 4, x1 += 4, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
            const uint32_t p0 = xp_load(x0), p1 = xp_load(x1);
            const uint32_t v0 = xp_load(w0), v1 = xp_load(w1), v2 = xp_load(w2), v3 = xp_load(w3);
            a0 = dot4(p0, v0, a0), a1 = dot4(p0, v1, a1), a2 = dot4(p0, v2, a2), a3 = dot4(p0, v3, a3);
            b0 = dot4(p1, v0, b0), b1 = dot4(p1, v1, b1), b2 = dot4(p1, v2, b2), b3 = dot4(p1, v3, b3);
        }
    }
    finish_2(a0, b0, y, y_step, 0, s, p), finish_2(a1, b1, y, y_step, 1, s, p);
    finish_2(a2, b2, y, y_step, 2, s, p), finish_2(a3, b3, y, y_step, 3, s, p);
}

/* One row of x. */
static inline void block_1x4(const struct pulp_product *p, const struct rows *r, const X_T *x, const W_T *w0, OUT_T *y,
                             const int32_t *sums, struct operands s) {
    const W_T *w1 = w0 + p->w_row, *w2 = w1 + p->w_row, *w3 = w2 + p->w_row;
    const int words = words_of_run(p, r);
    int32_t a0 = row_sum(sums, 0), a1 = a0, a2 = a0, a3 = a0;
    if (has_rest(p)) {
        const uint32_t end = end_of(x, p);
        a0 = dot4(end, end_of(w0, p), a0), a1 = dot4(end, end_of(w1, p), a1);
        a2 = dot4(end, end_of(w2, p), a2), a3 = dot4(end, end_of(w3, p), a3);
    }
    for (int run = runs_of(r); run > 0 && has_words(words); run--, x += skip_of(r)) {
        XP_BLOCK(BEGIN LOOP("%[n]", 9) XP_LOAD("t0", "x") XP_LOAD("t1", "w0") XP_LOAD("t2", "w1") XP_LOAD("t3", "w2")
                     XP_LOAD("t4", "w3") DOT("a0", "t0", "t1") DOT("a1", "t0", "t2") DOT("a2", "t0", "t3")
                         DOT("a3", "t0", "t4") END : [a0] "+r"(a0),
                 [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [x] "+r"(x), [w0] "+r"(w0), [w1] "+r"(w1), [w2] "+r"(w2),
                 [w3] "+r"(w3) : [n] "r"(words), [sdot] "i"(SDOT) : "t0", "t1", "t2", "t3", "t4", "memory");
        for (int i = 0; i < words && !XPULP_INSN; i++, x += 4, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
            const uint32_t p0 = xp_load(x);
            a0 = dot4(p0, xp_load(w0), a0), a1 = dot4(p0, xp_load(w1), a1);
            a2 = dot4(p0, xp_load(w2), a2), a3 = dot4(p0, xp_load(w3), a3);
        }
    }
    finish_1(a0, y, 0, s, p), finish_1(a1, y, 1, s, p), finish_1(a2, y, 2, s, p), finish_1(a3, y, 3, s, p);
}

/* Two rows of x by two filters, the same twice where there is but one. */
static inline void block_2x2(const struct pulp_product *p, const struct rows *r, const X_T *x0, int is_two,
                             const W_T *w0, int w_step, OUT_T *y, const int32_t *sums, int channel) {
    const int x_step = is_two ? r->x_step : 0, y_step = is_two ? r->y_step : 0;
    const X_T *x1 = x0 + x_step;
    const W_T *w1 = w0 + w_step;
    const int words = words_of_run(p, r), next = w_step != 0;
    const struct operands s = operands_of(p, channel);
    int32_t a0 = row_sum(sums, 0), a1 = a0, b0 = row_sum(sums, is_two), b1 = b0;
    if (has_rest(p)) {
        const uint32_t p0 = end_of(x0, p), p1 = end_of(x1, p);
        a0 = dot4(p0, end_of(w0, p), a0), a1 = dot4(p0, end_of(w1, p), a1);
        b0 = dot4(p1, end_of(w0, p), b0), b1 = dot4(p1, end_of(w1, p), b1);
    }
    for (int run = runs_of(r); run > 0 && has_words(words); run--, x0 += skip_of(r), x1 += skip_of(r)) {
        XP_BLOCK(BEGIN LOOP("%[n]", 8) XP_LOAD("t0", "x0") XP_LOAD("t1", "x1") XP_LOAD("t2", "w0") XP_LOAD("t3", "w1")
                     DOT("a0", "t0", "t2") DOT("b0", "t1", "t2") DOT("a1", "t0", "t3") DOT("b1", "t1", "t3")
                         END : [a0] "+r"(a0),
                 [a1] "+r"(a1), [b0] "+r"(b0), [b1] "+r"(b1), [x0] "+r"(x0), [x1] "+r"(x1), [w0] "+r"(w0),
                 [w1] "+r"(w1) : [n] "r"(words), [sdot] "i"(SDOT) : "t0", "t1", "t2", "t3", "memory");
        for (int i = 0; i < words && !XPULP_INSN; i++, x0 += 4, x1 += 4, w0 += 4, w1 += 4) {
            const uint32_t p0 = xp_load(x0), p1 = xp_load(x1), v0 = xp_load(w0), v1 = xp_load(w1);
            a0 = dot4(p0, v0, a0), a1 = dot4(p0, v1, a1), b0 = dot4(p1, v0, b0), b1 = dot4(p1, v1, b1);
        }
    }
    finish_2(a0, b0, y, y_step, 0, s, p);
    if (!IS_PARTIAL || next) finish_2(a1, b1, y, y_step, next, s, p);
}

#include "pulp_block.h"

#endif
