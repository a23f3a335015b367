/* Products of rows of x with rows of w, whose elements have 1 to 7 bits.
 *
 * The bytes of a word of w are four lanes, each a stream of bits of its own: element i of a row is in lane i % 4, and
 * GROUP elements are whole words. Each four become a word of bytes. Signed ones are shifted up, so that accumulators
 * hold 2^UP times their sums until the end (WHOLE); others are shifted down. Of 4 bits: 22 instructions for 32
 * multiply-accumulates of one row of x, 32 for 64 of two; of 2 bits: 48 for 64 and 68 for 128, fewer where elements
 * have no sign. Others have no assembly: an element that lies in two words takes four instructions, any other at most
 * three. Depths are multiples of GROUP.
 */
#ifndef DEEPLOY_PULP_WORDS_H
#define DEEPLOY_PULP_WORDS_H

#include "../portable/packed.h"
#include "pulp_dots.h"

enum { GROUP = 4 * PACKED_PER_UNIT(W_BITS), UP = !W_IS_SIGNED ? 0 : W_BITS == 1 ? 6 : 8 - W_BITS };
#define WHOLE(acc) ((acc) >> UP)

/* The next word. */
static inline uint32_t next_word(const void **from) {
    uint32_t word;
#ifdef XPULP_INSN
    __asm__ volatile(".insn i 0x0b, 2, %0, %1, 4" : "=r"(word), "+r"(*from));
#else
    word = xp_load(*from);
    *from = (const uint8_t *)*from + 4;
#endif
    return word;
}

/* The i-th four elements of a group of words, of which `word` was read last. Every instruction is where it is written:
 * what a compiler computed sooner would not fit into registers. */
static inline __attribute__((always_inline)) uint32_t next_four(const void **w, uint32_t *word, int i) {
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
#ifdef XPULP_INSN
    __asm__ volatile(".insn r 0x57, 1, %3, %0, %1, %2" : "+r"(acc) : "r"(x), "r"(w), "i"(SDOT));
    return acc;
#else
    return dot4(x, w, acc);
#endif
}

#if W_BITS == 2 || W_BITS == 4
/* The same in assembly, on bytes where one instruction does: shifts up and down by twice as much, and masks of six
 * bits, the lowest of which is one or not. 0xc0 is none of them, and lies in a7. */
#define SHIFT_UP(to, from, half) ".insn r 0x57, 7, 0x28, " to ", " from ", x" #half "\n"
#define SHIFT_DOWN(to, from, half) ".insn r 0x57, 7, 0x20, " to ", " from ", x" #half "\n"
#define KEEP(to, from, half, lowest) ".insn r 0x57, 7, 0x34 + " #lowest ", " to ", " from ", x" #half "\n"
#define TOP(to, from) "and " to ", " from ", a7\n"
#define SHIFTED(instruction, to, from, by) instruction " " to ", " from ", " by "\n"
#define FIRST_MASK ""
#if W_BITS == 4 && W_IS_SIGNED
#define FOUR_0(to, from) SHIFT_UP(to, from, 2)
#define FOUR_1(to, from) KEEP(to, from, 24, 0)
#elif W_BITS == 4
#define FOUR_0(to, from) KEEP(to, from, 7, 1)
#define FOUR_1(to, from) SHIFT_DOWN(to, from, 2)
#elif W_IS_SIGNED
#define FOUR_0(to, from) SHIFT_UP(to, from, 3)
#define FOUR_1(to, from) SHIFTED("slli", to, from, "4") TOP(to, to)
#define FOUR_2(to, from) SHIFTED("slli", to, from, "2") TOP(to, to)
#define FOUR_3(to, from) TOP(to, from)
#undef FIRST_MASK
#define FIRST_MASK "li a7, 0xc0c0c0c0\n"
#else
#define FOUR_0(to, from) KEEP(to, from, 1, 1)
#define FOUR_1(to, from) SHIFTED("srli", to, from, "2") KEEP(to, to, 1, 1)
#define FOUR_2(to, from) SHIFTED("srli", to, from, "4") KEEP(to, to, 1, 1)
#define FOUR_3(to, from) SHIFT_DOWN(to, from, 3)
#endif
#if W_BITS == 4
#define ALL_FOURS(of) of(FOUR_0) of(FOUR_1)
#define LENGTH_1 22
#define LENGTH_2 32
#else
#define ALL_FOURS(of) of(FOUR_0) of(FOUR_1) of(FOUR_2) of(FOUR_3)
#define LENGTH_1 48
#define LENGTH_2 68
#endif
#define LOOP_OF(length) LOOP("%[n]", length)
#define LOAD_W LOAD("t0", "w0") LOAD("t1", "w1") LOAD("t2", "w2") LOAD("t3", "w3")
#define BY_1(four, w, j) four("t6", w) DOT("a" j, "t4", "t6")
#define BY_2(four, w, j) BY_1(four, w, j) DOT("b" j, "t5", "t6")
#define ONE_ROW(four) \
    LOAD("t4", "x0") BY_1(four, "t0", "0") BY_1(four, "t1", "1") BY_1(four, "t2", "2") BY_1(four, "t3", "3")
#define TWO_ROWS(four) \
    LOAD("t4", "x0")   \
    LOAD("t5", "x1") BY_2(four, "t0", "0") BY_2(four, "t1", "1") BY_2(four, "t2", "2") BY_2(four, "t3", "3")
#endif

#define FIRST_4(of) of(0) of(1) of(2) of(3)
#if W_BITS == 4
#define EACH_FOUR(of) of(0) of(1)
#elif W_BITS == 2 || W_BITS == 6
#define EACH_FOUR(of) FIRST_4(of)
#else
#define EACH_FOUR(of) FIRST_4(of) of(4) of(5) of(6) of(7)
#endif
#define FOUR_BY_1(i)                                  \
    p = next_word(&x0);                               \
    a0 = dot4_here(p, next_four(&w0, &word0, i), a0); \
    a1 = dot4_here(p, next_four(&w1, &word1, i), a1); \
    a2 = dot4_here(p, next_four(&w2, &word2, i), a2); \
    a3 = dot4_here(p, next_four(&w3, &word3, i), a3);
#define FOUR_BY_2(i)                                                                   \
    p = next_word(&x0), q = next_word(&x1);                                            \
    v = next_four(&w0, &word0, i), a0 = dot4_here(p, v, a0), b0 = dot4_here(q, v, b0); \
    v = next_four(&w1, &word1, i), a1 = dot4_here(p, v, a1), b1 = dot4_here(q, v, b1); \
    v = next_four(&w2, &word2, i), a2 = dot4_here(p, v, a2), b2 = dot4_here(q, v, b2); \
    v = next_four(&w3, &word3, i), a3 = dot4_here(p, v, a3), b3 = dot4_here(q, v, b3);

/* Where rows are read: two of x and four of w. */
struct places {
    const X_T *x0, *x1;
    const W_T *w0, *w1, *w2, *w3;
};

/* Adds the products of so many groups of w to acc[j], of the second row of x to acc[4 + j], and moves on behind them.
 */
static inline void dots(struct places *at, int groups, int rows, int32_t *acc) {
    const void *x0 = at->x0, *x1 = at->x1, *w0 = at->w0, *w1 = at->w1, *w2 = at->w2, *w3 = at->w3;
    int32_t a0 = acc[0], a1 = acc[1], a2 = acc[2], a3 = acc[3];
    if (rows == 1) {
#if defined(XPULP_INSN) && (W_BITS == 2 || W_BITS == 4)
        __asm__ volatile(BEGIN FIRST_MASK LOOP_OF(LENGTH_1) LOAD_W ALL_FOURS(ONE_ROW) END
                         : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [x0] "+r"(x0), [w0] "+r"(w0),
                           [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3)
                         : [n] "r"(groups), [sdot] "i"(SDOT)
                         : "t0", "t1", "t2", "t3", "t4", "t6", "a7", "memory");
#else
        uint32_t p, word0, word1, word2, word3;
        XP_WRITTEN();
        for (; groups > 0; groups--) {
            EACH_FOUR(FOUR_BY_1)
        }
#endif
    } else {
        int32_t b0 = acc[4], b1 = acc[5], b2 = acc[6], b3 = acc[7];
#if defined(XPULP_INSN) && (W_BITS == 2 || W_BITS == 4)
        __asm__ volatile(
            BEGIN FIRST_MASK LOOP_OF(LENGTH_2) LOAD_W ALL_FOURS(TWO_ROWS) END
            : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [b0] "+r"(b0), [b1] "+r"(b1), [b2] "+r"(b2),
              [b3] "+r"(b3), [x0] "+r"(x0), [x1] "+r"(x1), [w0] "+r"(w0), [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3)
            : [n] "r"(groups), [sdot] "i"(SDOT)
            : "t0", "t1", "t2", "t3", "t4", "t5", "t6", "a7", "memory");
#else
        uint32_t p, q, v, word0, word1, word2, word3;
        XP_WRITTEN();
        for (; groups > 0; groups--) {
            EACH_FOUR(FOUR_BY_2)
        }
#endif
        acc[4] = b0, acc[5] = b1, acc[6] = b2, acc[7] = b3;
    }
    acc[0] = a0, acc[1] = a1, acc[2] = a2, acc[3] = a3;
    *at = (struct places){x0, x1, w0, w1, w2, w3};
}

#endif
