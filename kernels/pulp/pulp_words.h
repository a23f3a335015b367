/* Products of rows of x with rows of w, whose elements have 2 or 4 bits.
 *
 * A word of w holds several times four elements: the first four in the lowest bits of its bytes. Each four become a
 * word of bytes. Signed ones are shifted up, so that accumulators hold 2^UP times their sums until the end (WHOLE);
 * others are shifted down. Of 4 bits: 22 instructions for 32 multiply-accumulates of one row of x, 32 for 64 of two; of
 * 2 bits: 48 for 64 and 68 for 128, fewer where elements have no sign. Depths are multiples of PER_WORD.
 */
#ifndef DEEPLOY_PULP_WORDS_H
#define DEEPLOY_PULP_WORDS_H

#include "pulp_dots.h"

enum { PER_WORD = 32 / W_BITS, UP = W_IS_SIGNED ? 8 - W_BITS : 0 };
#define WHOLE(acc) ((acc) >> UP)

/* The i-th four elements of a word. */
static inline uint32_t four(uint32_t w, int i) {
    const uint32_t byte = W_IS_SIGNED ? 256 - (1 << UP) : (1 << W_BITS) - 1;
    return (W_IS_SIGNED ? w << (UP - W_BITS * i) : w >> W_BITS * i) & byte * 0x01010101;
}

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

/* Where rows are read: two of x and four of w. */
struct places {
    const X_T *x0, *x1;
    const W_T *w0, *w1, *w2, *w3;
};

/* Adds the products of so many words of w to acc[j], of the second row of x to acc[4 + j], and moves on behind them. */
static inline void dots(struct places *at, int words, int rows, int32_t *acc) {
    const X_T *x0 = at->x0, *x1 = at->x1;
    const W_T *w0 = at->w0, *w1 = at->w1, *w2 = at->w2, *w3 = at->w3;
    int32_t a0 = acc[0], a1 = acc[1], a2 = acc[2], a3 = acc[3];
    if (rows == 1) {
#ifdef XPULP_INSN
        __asm__ volatile(BEGIN FIRST_MASK LOOP_OF(LENGTH_1) LOAD_W ALL_FOURS(ONE_ROW) END
                         : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [x0] "+r"(x0), [w0] "+r"(w0),
                           [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3)
                         : [n] "r"(words), [sdot] "i"(SDOT)
                         : "t0", "t1", "t2", "t3", "t4", "t6", "a7", "memory");
#else
        for (int i = 0; i < words; i++, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
            for (int part = 0; part < 8 / W_BITS; part++, x0 += 4) {
                const uint32_t p = xp_load(x0);
                a0 = dot4(p, four(xp_load(w0), part), a0), a1 = dot4(p, four(xp_load(w1), part), a1);
                a2 = dot4(p, four(xp_load(w2), part), a2), a3 = dot4(p, four(xp_load(w3), part), a3);
            }
        }
#endif
    } else {
        int32_t b0 = acc[4], b1 = acc[5], b2 = acc[6], b3 = acc[7];
#ifdef XPULP_INSN
        __asm__ volatile(
            BEGIN FIRST_MASK LOOP_OF(LENGTH_2) LOAD_W ALL_FOURS(TWO_ROWS) END
            : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [b0] "+r"(b0), [b1] "+r"(b1), [b2] "+r"(b2),
              [b3] "+r"(b3), [x0] "+r"(x0), [x1] "+r"(x1), [w0] "+r"(w0), [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3)
            : [n] "r"(words), [sdot] "i"(SDOT)
            : "t0", "t1", "t2", "t3", "t4", "t5", "t6", "a7", "memory");
#else
        for (int i = 0; i < words; i++, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
            for (int part = 0; part < 8 / W_BITS; part++, x0 += 4, x1 += 4) {
                const uint32_t p = xp_load(x0), q = xp_load(x1);
                const uint32_t v0 = four(xp_load(w0), part), v1 = four(xp_load(w1), part);
                const uint32_t v2 = four(xp_load(w2), part), v3 = four(xp_load(w3), part);
                a0 = dot4(p, v0, a0), a1 = dot4(p, v1, a1), a2 = dot4(p, v2, a2), a3 = dot4(p, v3, a3);
                b0 = dot4(q, v0, b0), b1 = dot4(q, v1, b1), b2 = dot4(q, v2, b2), b3 = dot4(q, v3, b3);
            }
        }
#endif
        acc[4] = b0, acc[5] = b1, acc[6] = b2, acc[7] = b3;
    }
    acc[0] = a0, acc[1] = a1, acc[2] = a2, acc[3] = a3;
    *at = (struct places){x0, x1, w0, w1, w2, w3};
}

#endif
