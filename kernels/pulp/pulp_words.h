/* Products of rows of x with rows of w, whose elements have 1 to 7 bits.
 *
 * The bytes of a word of w are four lanes, each a stream of bits of its own: element i of a row is in lane i % 4, and
 * GROUP elements are whole words. Each four become a word of bytes. Signed ones are shifted up, so that accumulators
 * hold 2^UP times their sums until the end (whole); others are shifted down. Of 4 bits: 22 instructions for 32
 * multiply-accumulates of one row of x, 32 for 64 of two; of 2 bits: 48 for 64 and 68 for 128, fewer where elements
 * have no sign. Others have no assembly: an element that lies in two words takes four instructions, any other at most
 * three. Depths are multiples of GROUP.
 */
#ifndef DEEPLOY_PULP_WORDS_H
#define DEEPLOY_PULP_WORDS_H

enum { IS_PACKED = 1 };
#include "../portable/packed.h"
#include "pulp_dots.h"

enum {
    GROUP = 4 * PACKED_PER_UNIT(W_BITS),
    FOURS = GROUP / 4, /* words of bytes that a group becomes */
    UP = !W_IS_SIGNED ? 0
    : W_BITS == 1     ? 6
                      : 8 - W_BITS,
    BY_WORDS = XPULP_INSN && (W_BITS == 2 || W_BITS == 4)
};

static inline int32_t whole(int32_t acc) {
    return acc >> UP;
}

/* The next word. */
static inline uint32_t next_word(const void **from) {
    uint32_t word = 0;
    XP_BLOCK(".insn i 0x0b, 2, %0, %1, 4" : "=r"(word), "+r"(*from));
    if (!XPULP_INSN) {
        word = xp_load(*from);
        *from = (const uint8_t *)*from + 4;
    }
    return word;
}

/* The i-th four elements of a group of words, of which `word` was read last. Every instruction is where it is written:
 * what a compiler computed sooner would not fit into registers. */
FOLDED uint32_t next_four(const void **w, uint32_t *word, int i) {
    const int before = i * W_BITS % 8, behind = 8 - before - W_BITS, up = W_IS_SIGNED ? 8 - W_BITS : 0;
    const uint32_t kept = (((1u << W_BITS) - 1) << up) * 0x01010101u;
    if (before == 0) *word = next_word(w);
    if (behind < 0) {
        const uint32_t low = *word;
        *word = next_word(w);
        return (xp_shift_down4(low, before - up) | xp_shift_up4(*word, 8 - before + up)) & kept;
    }
    const uint32_t four = W_IS_SIGNED ? xp_shift_up4(*word, behind) : xp_shift_down4(*word, before);
    const uint32_t clear = W_IS_SIGNED ? (before == 0 ? four : four & kept) : behind == 0 ? four : four & kept;
    return W_BITS == 1 && W_IS_SIGNED ? clear | 0x40404040 : clear;
}

static inline int32_t dot4_here(uint32_t x, uint32_t w, int32_t acc) {
    XP_BLOCK(".insn r 0x57, 1, %3, %0, %1, %2" : "+r"(acc) : "r"(x), "r"(w), "i"(SDOT));
    return XPULP_INSN ? acc : dot4(x, w, acc);
}

/* The same in assembly for 2 and 4 bits, on bytes where one instruction does: shifts up and down by twice as much, and
 * masks of six bits, the lowest of which is one or not. 0xc0 is none of them, and lies in a7. */
enum { SDOT_OF_WORDS = (int)SDOT | W_IS_SIGNED << 8 };
#define BY_SIGN(is_signed, other) EITHER("%[sdot] & 256", is_signed, other)
#define SHIFT_UP(to, from, half) ".insn r 0x57, 7, 0x28, " to ", " from ", x" #half "\n"
#define SHIFT_DOWN(to, from, half) ".insn r 0x57, 7, 0x20, " to ", " from ", x" #half "\n"
#define KEEP(to, from, half, lowest) ".insn r 0x57, 7, 0x34 + " #lowest ", " to ", " from ", x" #half "\n"
#define TOP(to, from) "and " to ", " from ", a7\n"
#define MOVE(instruction, to, from, by) instruction " " to ", " from ", " by "\n"
#define OF_4_BITS_0(to, from) BY_SIGN(SHIFT_UP(to, from, 2), KEEP(to, from, 7, 1))
#define OF_4_BITS_1(to, from) BY_SIGN(KEEP(to, from, 24, 0), SHIFT_DOWN(to, from, 2))
#define OF_2_BITS_0(to, from) BY_SIGN(SHIFT_UP(to, from, 3), KEEP(to, from, 1, 1))
#define OF_2_BITS_1(to, from) \
    BY_SIGN(MOVE("slli", to, from, "4") TOP(to, to), MOVE("srli", to, from, "2") KEEP(to, to, 1, 1))
#define OF_2_BITS_2(to, from) \
    BY_SIGN(MOVE("slli", to, from, "2") TOP(to, to), MOVE("srli", to, from, "4") KEEP(to, to, 1, 1))
#define OF_2_BITS_3(to, from) BY_SIGN(TOP(to, from), SHIFT_DOWN(to, from, 3))
#define LOAD_W XP_LOAD("t0", "w0") XP_LOAD("t1", "w1") XP_LOAD("t2", "w2") XP_LOAD("t3", "w3")
#define BY_1(four, w, j) four("t6", w) DOT("a" j, "t4", "t6")
#define BY_2(four, w, j) BY_1(four, w, j) DOT("b" j, "t5", "t6")
#define ONE_ROW(four) \
    XP_LOAD("t4", "x0") BY_1(four, "t0", "0") BY_1(four, "t1", "1") BY_1(four, "t2", "2") BY_1(four, "t3", "3")
#define TWO_ROWS(four)  \
    XP_LOAD("t4", "x0") \
    XP_LOAD("t5", "x1") BY_2(four, "t0", "0") BY_2(four, "t1", "1") BY_2(four, "t2", "2") BY_2(four, "t3", "3")
#define FOURS_OF_4_BITS(of) LOAD_W of(OF_4_BITS_0) of(OF_4_BITS_1)
#define FOURS_OF_2_BITS(of) LOAD_W of(OF_2_BITS_0) of(OF_2_BITS_1) of(OF_2_BITS_2) of(OF_2_BITS_3)
#define FIRST_MASK BY_SIGN("li a7, 0xc0c0c0c0\n", "")
#define OF_ONE_ROW(fours)                                                                                            \
    XP_BLOCK(                                                                                                        \
        BEGIN fours END : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [x0] "+r"(x0), [w0] "+r"(w0),  \
        [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3) : [n] "r"(groups), [sdot] "i"(SDOT_OF_WORDS) : "t0", "t1", "t2", \
        "t3", "t4", "t6", "a7", "memory")
#define OF_TWO_ROWS(fours)                                                                                             \
    XP_BLOCK(BEGIN fours END : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [b0] "+r"(b0),              \
             [b1] "+r"(b1), [b2] "+r"(b2), [b3] "+r"(b3), [x0] "+r"(x0), [x1] "+r"(x1), [w0] "+r"(w0), [w1] "+r"(w1),  \
             [w2] "+r"(w2), [w3] "+r"(w3) : [n] "r"(groups), [sdot] "i"(SDOT_OF_WORDS) : "t0", "t1", "t2", "t3", "t4", \
             "t5", "t6", "a7", "memory")

/* Where rows are read: two of x and four of w. */
struct places {
    const X_T *x0, *x1;
    const W_T *w0, *w1, *w2, *w3;
};

/* Pointers into rows, and the words that were read last. */
struct reading {
    const void *x[2], *w[4];
    uint32_t word[4];
};

/* The products of the i-th four elements of a group. */
FOLDED void add_four(struct reading *r, int rows, int32_t *acc, int i) {
    const uint32_t p = next_word(&r->x[0]), q = rows == 2 ? next_word(&r->x[1]) : 0;
    const uint32_t v0 = next_four(&r->w[0], &r->word[0], i);
    acc[0] = dot4_here(p, v0, acc[0]);
    if (rows == 2) acc[4] = dot4_here(q, v0, acc[4]);
    const uint32_t v1 = next_four(&r->w[1], &r->word[1], i);
    acc[1] = dot4_here(p, v1, acc[1]);
    if (rows == 2) acc[5] = dot4_here(q, v1, acc[5]);
    const uint32_t v2 = next_four(&r->w[2], &r->word[2], i);
    acc[2] = dot4_here(p, v2, acc[2]);
    if (rows == 2) acc[6] = dot4_here(q, v2, acc[6]);
    const uint32_t v3 = next_four(&r->w[3], &r->word[3], i);
    acc[3] = dot4_here(p, v3, acc[3]);
    if (rows == 2) acc[7] = dot4_here(q, v3, acc[7]);
}

FOLDED void dots_by_fours(struct places *at, int groups, int rows, int32_t *sums) {
    struct reading r = {{at->x0, at->x1}, {at->w0, at->w1, at->w2, at->w3}, {0}};
    int32_t acc[8] = {sums[0], sums[1], sums[2], sums[3]};
    if (rows == 2) acc[4] = sums[4], acc[5] = sums[5], acc[6] = sums[6], acc[7] = sums[7];
    xp_written();
    for (; groups > 0; groups--) {
        add_four(&r, rows, acc, 0), add_four(&r, rows, acc, 1);
        if (FOURS > 2) add_four(&r, rows, acc, 2), add_four(&r, rows, acc, 3);
        if (FOURS > 4) add_four(&r, rows, acc, 4), add_four(&r, rows, acc, 5);
        if (FOURS > 4) add_four(&r, rows, acc, 6), add_four(&r, rows, acc, 7);
    }
    sums[0] = acc[0], sums[1] = acc[1], sums[2] = acc[2], sums[3] = acc[3];
    if (rows == 2) sums[4] = acc[4], sums[5] = acc[5], sums[6] = acc[6], sums[7] = acc[7];
    *at = (struct places){r.x[0], r.x[1], r.w[0], r.w[1], r.w[2], r.w[3]};
}

/* Adds the products of so many groups of w to acc[j], of the second row of x to acc[4 + j], and moves on behind them.
 */
FOLDED void dots(struct places *at, int groups, int rows, int32_t *acc) {
    if (!BY_WORDS) {
        dots_by_fours(at, groups, rows, acc);
        return;
    }
    const void *x0 = at->x0, *x1 = at->x1, *w0 = at->w0, *w1 = at->w1, *w2 = at->w2, *w3 = at->w3;
    int32_t a0 = acc[0], a1 = acc[1], a2 = acc[2], a3 = acc[3];
    if (rows == 1) {
        if (W_BITS == 4)
            OF_ONE_ROW(LOOP("%[n]", 22) FOURS_OF_4_BITS(ONE_ROW));
        else
            OF_ONE_ROW(FIRST_MASK LOOP("%[n]", 48) FOURS_OF_2_BITS(ONE_ROW));
    } else {
        int32_t b0 = acc[4], b1 = acc[5], b2 = acc[6], b3 = acc[7];
        if (W_BITS == 4)
            OF_TWO_ROWS(LOOP("%[n]", 32) FOURS_OF_4_BITS(TWO_ROWS));
        else
            OF_TWO_ROWS(FIRST_MASK LOOP("%[n]", 68) FOURS_OF_2_BITS(TWO_ROWS));
        acc[4] = b0, acc[5] = b1, acc[6] = b2, acc[7] = b3;
    }
    acc[0] = a0, acc[1] = a1, acc[2] = a2, acc[3] = a3;
    *at = (struct places){x0, x1, w0, w1, w2, w3};
}

#endif
