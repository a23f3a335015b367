/* Sums of products, of which streams hand out one factor or both. */
#ifndef SNITCH_PRODUCTS_H
#define SNITCH_PRODUCTS_H

#include "snitch_streams.h"

/* The first stream, for multiply_ones: what sums of so many pairs begin with, for so many outputs. That is the bias
 * where every channel has one of its own, else `both`. */
#define STREAM_STARTS(streams, e, channel, both, lanes, outputs)                 \
    do {                                                                         \
        const int each = (e).bias && (e).bias_step;                              \
        if (!each) begin_sums(both, &(e), channel, 2);                           \
        STREAM_BEGIN(streams, FIRST, 3,                                          \
                     {each ? (float *)(e).bias + (channel) : (both),             \
                      1,                                                         \
                      {(lanes) > 8 ? 2 : 1, (lanes) > 8 ? 8 : (lanes), outputs}, \
                      {each ? 16 : 0, each ? 2 : 0, 0}});                        \
    } while (0)

/* Depthwise sums of three rows of three taps, whose weights stay in registers: `lines` lines of `groups` groups of four
 * outputs, and two pairs of channels beside each other, which a stream each hands out for one line. Neighbouring
 * channels lie in different banks of memory, also where neighbouring outputs do not. */
struct nine {
    const float *w;
    int w_row, w_step; /* from tap to tap */
    const float *start;
    int lines, groups;
    int x_line;                  /* floats from line to line, */
    int y_line, y_group, y_step; /* from group to group, and from output to output */
};

#ifdef __riscv

#define MULTIPLY(product) ".insn r 0x33, 0, 0x43, " product ", ft0, ft1\n"
#define ADD_PRODUCT(sum) ".insn r 0x33, 0, 0x48, " sum ", ft0, ft1\n"

#define FOUR(what, a, b, c, d) what("%" #a) what("%" #b) what("%" #c) what("%" #d)
#define OUT(how, s) how(s[0])
#define OUTS_4(how, s) how(s[0]), how(s[1]), how(s[2]), how(s[3])
#define OUTS_8(how, s) OUTS_4(how, s), how(s[4]), how(s[5]), how(s[6]), how(s[7])

/* s[j] = the sum of the products of `pairs` pairs of both streams, which serve so many sums in turn. */
static inline void multiply_8(struct streams *streams, pair *s, int pairs) {
    (void)streams;
    __asm__ volatile(FOUR(MULTIPLY, 0, 1, 2, 3) FOUR(MULTIPLY, 4, 5, 6, 7) : OUTS_8("=f", s) : : "memory");
    if (pairs < 2) return;
    __asm__ volatile(REPEAT(8) FOUR(ADD_PRODUCT, 0, 1, 2, 3) FOUR(ADD_PRODUCT, 4, 5, 6, 7)
                     : OUTS_8("+f", s)
                     : [last] "r"(pairs - 2)
                     : "memory");
}

static inline void multiply_4(struct streams *streams, pair *s, int pairs) {
    (void)streams;
    __asm__ volatile(FOUR(MULTIPLY, 0, 1, 2, 3) : OUTS_4("=f", s) : : "memory");
    if (pairs < 2) return;
    __asm__ volatile(REPEAT(4) FOUR(ADD_PRODUCT, 0, 1, 2, 3) : OUTS_4("+f", s) : [last] "r"(pairs - 2) : "memory");
}

static inline void multiply_1(struct streams *streams, pair *s, int pairs) {
    (void)streams;
    __asm__ volatile(MULTIPLY("%0") : OUT("=f", s) : : "memory");
    if (pairs < 2) return;
    __asm__ volatile(REPEAT(1) ADD_PRODUCT("%0") : OUT("+f", s) : [last] "r"(pairs - 2) : "memory");
}

/* One instruction for all sums: frep.o, whose registers are each time those next to the time before, at most eight:
 * that of the result, or also that of the first operand. */
#define EACH_1(what) what("f8")
#define EACH_2(what) what("f8")
#define EACH_4(what) what("f8")
#define EACH_8(what) what("f8")
#define EACH_16(what) what("f8") what("f16")
#define RESULT_OF_EACH(lanes, what) ".insn i 0x0B, 7, x3, %[each], " LESS_##lanes "\n" EACH_##lanes(what)
#define BOTH_OF_EACH(lanes, what) ".insn i 0x0B, 7, x7, %[each], " LESS_##lanes "\n" EACH_##lanes(what)
#define LESS_1 "0"
#define LESS_2 "0"
#define LESS_4 "0"
#define LESS_8 "0"
#define LESS_16 "1"
#define TIMES(lanes) ((lanes) < 8 ? (lanes) - 1 : 7)
#define BEGIN_SUM(sum) ".insn r 0x33, 0, 0x41, " sum ", ft0, %[zero]\n"
#define COPY_SUM(sum) ".insn r 0x33, 0, 0x41, " sum ", %[start], %[zero]\n"
#define RAISE(sum) ".insn r 0x33, 0, 0x46, " sum ", " sum ", %[low]\n"
#define LOWER(sum) ".insn r 0x33, 0, 0x45, " sum ", " sum ", %[high]\n"
#ifdef EPILOGUE_CLAMP
#define CLAMP_SUMS(lanes) \
    "beqz %[has_low], 5f\n" BOTH_OF_EACH(lanes, RAISE) "5: beqz %[has_high], 6f\n" BOTH_OF_EACH(lanes, LOWER) "6:\n"
#else
#define CLAMP_SUMS(lanes)
#endif
#define CLAMP_OPERANDS [low] "f"(e->low), [high] "f"(e->high), [has_low] "r"(e->has_low), [has_high] "r"(e->has_high)

/* Instructions that are repeated eight times, with the register of the second operand next to that of the time before.
 */
#define REPEAT_NEXT(lanes) ".insn i 0x0B, 7, x9, %[seven], " #lanes " - 1\n"
#define ADD_ONE(sum, n) ".insn r 0x33, 4, 0x48, " sum ", ft1, f24\n" /* times the lower one of a register */
#define ADD_PAIR(sum, n) ".insn r 0x33, 0, 0x48, " sum ", ft0, f24\n"

/* Stores sums of as many pairs, clamped: to what STREAM_STARTS began, the products of numbers of x and of pairs of the
 * second one are added. Numbers of x are `rows` rows of `count` neighbours, `row` floats apart. */
#define MULTIPLY_ONES(lanes)                                                                                        \
    static inline void multiply_ones_##lanes(struct streams *streams, const float *x, int count, int rows, int row, \
                                             float *y, const struct ends *e) {                                      \
        const float *end, *whole;                                                                                   \
        (void)streams;                                                                                              \
        __asm__ volatile(RESULT_OF_EACH(lanes, BEGIN_SUM) "1: andi %[whole], %[count], -32\n"                    \
                         "add %[whole], %[whole], %[x]\n"                                                        \
                         "add %[end], %[x], %[count]\n"                                                          \
                         "beq %[x], %[whole], 3f\n"                                                              \
                         ".balign 64\n2: flw f24, 0(%[x])\n flw f25, 4(%[x])\n flw f26, 8(%[x])\n flw f27, 12(%[x])\n"       \
                         "flw f28, 16(%[x])\n flw f29, 20(%[x])\n flw f30, 24(%[x])\n flw f31, 28(%[x])\n"       \
                         "addi %[x], %[x], 32\n" REPEAT_NEXT(lanes) SUMS_##lanes(ADD_ONE)                        \
                         "bne %[x], %[whole], 2b\n"                                                              \
                         "3: bne %[x], %[end], 7f\n"                                                             \
                         "4: add %[x], %[x], %[rest]\n"                                                          \
                         "addi %[rows], %[rows], -1\n"                                                           \
                         "bnez %[rows], 1b\n" CLAMP_SUMS(lanes) SUMS_##lanes(STORE_SUM)                          \
                         ".subsection 1\n"                                                                       \
                         "7: flw f24, 0(%[x])\n addi %[x], %[x], 4\n" SUMS_##lanes(ADD_ONE)                      \
                         "bne %[x], %[end], 7b\n j 4b\n"                                                         \
                         ".previous\n"                                                                           \
                         : [x] "+&r"(x), [rows] "+&r"(rows), [end] "=&r"(end), [whole] "=&r"(whole)                \
                         : [zero] "f"(pair_both(0)), [count] "r"(4 * count), [rest] "r"(4 * (row - count)),      \
                           [y] "r"(y), CLAMP_OPERANDS, [each] "r"(TIMES(lanes)), [seven] "r"(7)                  \
                         : CLOBBERED);  \
    }
MULTIPLY_ONES(16)
MULTIPLY_ONES(8)
MULTIPLY_ONES(4)
MULTIPLY_ONES(2)
MULTIPLY_ONES(1)

/* Stores start + the products of pairs of the first stream and of pairs of w, clamped: groups of so many outputs,
 * `y_step` floats apart, groups `y_other` apart; a pair of w serves all of a group. Pairs of w are `rows` rows of
 * `count`, `row` and `step` floats apart. */
#define PAIRS_OPERANDS(lanes)                                                                           \
    [count] "r"(count), [step] "r"(4 * step), [rest] "r"(4 * (row - count * step)), [start] "f"(start), \
        [zero] "f"(pair_both(0)), CLAMP_OPERANDS, [first] "r"(w), [y_step] "r"(4 * y_step),             \
        [y_rest] "r"(4 * (y_other - lanes * y_step)), [each] "r"(TIMES(lanes))
#define MULTIPLY_PAIRS(lanes)                                                                                      \
    static inline void multiply_pairs_##lanes(struct streams *streams, pair start, const float *w, int count,      \
                                              int rows, int step, int row, int groups, float *y, int y_step,       \
                                              int y_other, const struct ends *e) {                                 \
        int left, rows_left;                                                                                       \
        const float *at;                                                                                           \
        (void)streams;                                                                                             \
        __asm__ volatile("1: mv %[at], %[first]\n mv %[rows_left], %[rows]\n" RESULT_OF_EACH(lanes, COPY_SUM)    \
                         "2: mv %[left], %[count]\n"                                                             \
                         "3: fld f24, 0(%[at])\n add %[at], %[at], %[step]\n addi %[left], %[left], -1\n"        \
                         SUMS_##lanes(ADD_PAIR) "bnez %[left], 3b\n"                                             \
                         "add %[at], %[at], %[rest]\n addi %[rows_left], %[rows_left], -1\n"                     \
                         "bnez %[rows_left], 2b\n" CLAMP_SUMS(lanes) SUMS_##lanes(STORE_APART)                   \
                         "add %[y], %[y], %[y_rest]\n addi %[groups], %[groups], -1\n bnez %[groups], 1b\n"      \
                         : [groups] "+&r"(groups), [y] "+&r"(y), [rows_left] "=&r"(rows_left), [left] "=&r"(left), \
                           [at] "=&r"(at)                                                                        \
                         : PAIRS_OPERANDS(lanes), [rows] "r"(rows)                                               \
                         : CLOBBERED); \
    }
MULTIPLY_PAIRS(8)
MULTIPLY_PAIRS(4)
MULTIPLY_PAIRS(1)

#define LOAD_NEXT(register) "fld " register ", 0(%[at])\n add %[at], %[at], %[step]\n"
#define FIRST_PRODUCT(sum) ".insn r 0x33, 0, 0x43, " sum ", ft0, %[zeroth]\n"
#define ADD_START(sum) ".insn r 0x33, 0, 0x41, " sum ", " sum ", %[start]\n"

/* The same of groups of eight and of three rows of three taps, which stay in registers. */
static inline void multiply_nine_8(struct streams *streams, pair start, const float *w, int step, int row, int groups,
                                   float *y, int y_step, int y_other, const struct ends *e) {
    const float *at = w;
    const int count = 3, has_start = e->bias != 0;
    pair zeroth;
    (void)streams;
    __asm__ volatile(
        LOAD_NEXT("%[zeroth]") LOAD_NEXT("f24") LOAD_NEXT("f25") "add %[at], %[at], %[rest]\n" LOAD_NEXT("f26")
            LOAD_NEXT("f27") LOAD_NEXT("f28") "add %[at], %[at], %[rest]\n" LOAD_NEXT("f29") LOAD_NEXT("f30")
                LOAD_NEXT("f31") ".balign 32\n1:" RESULT_OF_EACH(8, FIRST_PRODUCT) REPEAT_NEXT(8)
                    SUMS_8(ADD_PAIR) "beqz %[has_start], 2f\n" BOTH_OF_EACH(8, ADD_START) "2:" CLAMP_SUMS(8) SUMS_8(
                        STORE_APART) "add %[y], %[y], %[y_rest]\n addi %[groups], %[groups], -1\n bnez %[groups], 1b\n"
        : [groups] "+&r"(groups), [y] "+&r"(y), [at] "+&r"(at), [zeroth] "=&f"(zeroth)
        : PAIRS_OPERANDS(8), [seven] "r"(7), [has_start] "r"(has_start)
        : CLOBBERED);
}

#define LOAD_TWO(one, two) "fld " one ", 0(%[at])\n fld " two ", 8(%[at])\n add %[at], %[at], %[step]\n"
#define ADD_TWO(one, two) ".insn r 0x33, 0, 0x48, " one ", ft0, f24\n .insn r 0x33, 0, 0x48, " two ", ft1, f16\n"
#define STORE_TWO(one, two, y) "fsd " one ", 0(" y ")\n fsd " two ", 8(" y ")\n"
#define FOUR_TIMES(mask, instructions) ".insn i 0x0B, 7, " mask ", %[three], " #instructions " - 1\n"
#define TWO_OF_FOUR(what) what("f8", "f12") what("f9", "f13") what("f10", "f14") what("f11", "f15")

static inline void multiply_nine(struct streams *streams, const struct nine *n, const float *x, float *y,
                                 const struct ends *e) {
    const float *at = n->w;
    float *y2, *y3;
    int lines = n->lines, left;
    pair first, second, sum;
    (void)streams;
    __asm__ volatile(
        LOAD_TWO("%[first]", "%[second]") LOAD_TWO("f24", "f16") LOAD_TWO("f25", "f17") "add %[at], %[at], %[rest]\n"
        LOAD_TWO("f26", "f18") LOAD_TWO("f27", "f19") LOAD_TWO("f28", "f20") "add %[at], %[at], %[rest]\n"
        LOAD_TWO("f29", "f21") LOAD_TWO("f30", "f22") LOAD_TWO("f31", "f23")
        "3: addi %[at], %[x], 8\n" STREAM_SET_IN(FIRST_FROM, "%[x]") STREAM_SET_IN(SECOND_FROM, "%[at]")
        "csrsi 0x7C0, 1\n mv %[left], %[groups]\n"
        ".balign 32\n1:" FOUR_TIMES("x3", 2) ".insn r 0x33, 0, 0x43, f8, ft0, %[first]\n"
        ".insn r 0x33, 0, 0x43, f12, ft1, %[second]\n" REPEAT_NEXT(8) TWO_OF_FOUR(ADD_TWO)
        "add %[at], %[y], %[y_step]\n add %[y2], %[at], %[y_step]\n add %[y3], %[y2], %[y_step]\n"
        "addi %[left], %[left], -1\n beqz %[has_start], 2f\n fld %[sum], 0(%[start])\n" FOUR_TIMES("x7", 1)
        ".insn r 0x33, 0, 0x41, f8, f8, %[sum]\n fld %[sum], 8(%[start])\n" FOUR_TIMES("x7", 1)
        ".insn r 0x33, 0, 0x41, f12, f12, %[sum]\n 2:" CLAMP_SUMS(8) STORE_TWO("f8", "f12", "%[y]")
        STORE_TWO("f9", "f13", "%[at]") STORE_TWO("f10", "f14", "%[y2]") STORE_TWO("f11", "f15", "%[y3]")
        "add %[y], %[y], %[y_group]\n bnez %[left], 1b\n"
        "fmv.x.w %[at], f15\n mv zero, %[at]\n csrci 0x7C0, 1\n"
        "add %[x], %[x], %[x_line]\n add %[y], %[y], %[y_line]\n addi %[lines], %[lines], -1\n bnez %[lines], 3b\n"
        : [lines] "+&r"(lines), [left] "=&r"(left), [x] "+&r"(x), [y] "+&r"(y), [at] "+&r"(at), [y2] "=&r"(y2), [y3] "=&r"(y3),
          [first] "=&f"(first), [second] "=&f"(second), [sum] "=&f"(sum)
        : [step] "r"(4 * n->w_step), [rest] "r"(4 * (n->w_row - 3 * n->w_step)), [start] "r"(n->start),
          [has_start] "r"(e->bias != 0), CLAMP_OPERANDS, [groups] "r"(n->groups), [x_line] "r"(4 * n->x_line),
          [y_line] "r"(4 * (n->y_line - n->groups * n->y_group)), [y_step] "r"(4 * n->y_step),
          [y_group] "r"(4 * n->y_group), [three] "r"(3), [seven] "r"(7), [each] "r"(7)
        : CLOBBERED);
}

#else

#define MULTIPLY_LANES(lanes)                                                                 \
    static inline void multiply_##lanes(struct streams *streams, pair *s, int pairs) {        \
        for (int i = 0; i < pairs; i++) {                                                     \
            for (int j = 0; j < lanes; j++) {                                                 \
                const pair a = stream_next(streams, FIRST), b = stream_next(streams, SECOND); \
                s[j] = i ? pair_mac(s[j], a, b) : pair_mul(a, b);                             \
            }                                                                                 \
        }                                                                                     \
    }
MULTIPLY_LANES(8)
MULTIPLY_LANES(4)
MULTIPLY_LANES(1)

#define MULTIPLY_ONES(lanes)                                                                                        \
    static inline void multiply_ones_##lanes(struct streams *streams, const float *x, int count, int rows, int row, \
                                             float *y, const struct ends *e) {                                      \
        pair s[lanes];                                                                                              \
        for (int j = 0; j < (lanes > 8 ? 8 : lanes); j++) {                                                         \
            for (int half = 0; half < (lanes > 8 ? 2 : 1); half++) s[j + 8 * half] = stream_next(streams, FIRST);   \
        }                                                                                                           \
        for (int r = 0; r < rows; r++) {                                                                            \
            for (int i = 0; i < count; i++) {                                                                       \
                const pair one = pair_both(x[r * row + i]);                                                         \
                for (int j = 0; j < lanes; j++) s[j] = pair_mac(s[j], stream_next(streams, SECOND), one);           \
            }                                                                                                       \
        }                                                                                                           \
        for (int j = 0; j < lanes; j++) pair_store(y + 2 * j, clamped(s[j], e));                                    \
    }
MULTIPLY_ONES(16)
MULTIPLY_ONES(8)
MULTIPLY_ONES(4)
MULTIPLY_ONES(2)
MULTIPLY_ONES(1)

#define MULTIPLY_PAIRS(lanes)                                                                                   \
    static inline void multiply_pairs_##lanes(struct streams *streams, pair start, const float *w, int count,   \
                                              int rows, int step, int row, int groups, float *y, int y_step,    \
                                              int y_other, const struct ends *e) {                              \
        for (int group = 0; group < groups; group++) {                                                          \
            pair s[lanes];                                                                                      \
            for (int j = 0; j < lanes; j++) s[j] = start;                                                       \
            for (int r = 0; r < rows; r++) {                                                                    \
                for (int i = 0; i < count; i++) {                                                               \
                    const pair weight = pair_load(w + r * row + i * step);                                      \
                    for (int j = 0; j < lanes; j++) s[j] = pair_mac(s[j], stream_next(streams, FIRST), weight); \
                }                                                                                               \
            }                                                                                                   \
            for (int j = 0; j < lanes; j++) pair_store(y + group * y_other + j * y_step, clamped(s[j], e));     \
        }                                                                                                       \
    }
MULTIPLY_PAIRS(8)
MULTIPLY_PAIRS(4)
MULTIPLY_PAIRS(1)

static inline void multiply_nine_8(struct streams *streams, pair start, const float *w, int step, int row, int groups,
                                   float *y, int y_step, int y_other, const struct ends *e) {
    multiply_pairs_8(streams, start, w, 3, 3, step, row, groups, y, y_step, y_other, e);
}

static inline void multiply_nine(struct streams *streams, const struct nine *n, const float *x, float *y,
                                 const struct ends *e) {
    for (int line = 0; line < n->lines; line++) {
        STREAM_FROM(streams, FIRST, 4, (float *)x + line * n->x_line);
        STREAM_FROM(streams, SECOND, 4, (float *)x + line * n->x_line + 2);
        for (int group = 0; group < n->groups; group++) {
            float *const to = y + line * n->y_line + group * n->y_group;
            pair s[8];
            for (int j = 0; j < 8; j++) s[j] = pair_both(0);
            for (int tap = 0; tap < 9; tap++) {
                const float *const w = n->w + tap / 3 * n->w_row + tap % 3 * n->w_step;
                for (int j = 0; j < 8; j++)
                    s[j] = pair_mac(s[j], stream_next(streams, j % 2), pair_load(w + j % 2 * 2));
            }
            for (int j = 0; j < 8; j++) {
                if (e->bias) s[j] = pair_add(s[j], pair_load(n->start + j % 2 * 2));
                pair_store(to + j / 2 * n->y_step + j % 2 * 2, clamped(s[j], e));
            }
        }
    }
}

#endif

#endif
