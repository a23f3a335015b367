/* Sums over a dense row of bytes, X_T: of its squares, and with WITH_TOTAL of its elements. Squares count modulo 2^32.
 */
#ifndef DEEPLOY_PULP_SQUARES_H
#define DEEPLOY_PULP_SQUARES_H

#include "xpulp.h"

enum { IS_SIGNED = (X_T)-1 < 0 };

struct sums {
    int32_t squares, total;
};

static inline int32_t dot4(uint32_t a, uint32_t b, int32_t acc) {
    return IS_SIGNED ? xp_sdotsp(a, b, acc) : xp_sdotup(a, b, acc);
}

#ifdef WITH_TOTAL
#define ADD(word) s.total = dot4(word, 0x01010101, s.total), s.squares = dot4(word, word, s.squares)
#define DOT(word) \
    ".insn r 0x57, 1, %[dot], %[total], " word ", %[ones]\n.insn r 0x57, 1, %[dot], %[squares], " word ", " word "\n"
enum { INSTRUCTIONS = 6 };
#else
#define ADD(word) s.squares = dot4(word, word, s.squares)
#define DOT(word) ".insn r 0x57, 1, %[dot], %[squares], " word ", " word "\n"
enum { INSTRUCTIONS = 4 };
#endif

static inline struct sums sums_of(const X_T *x, int columns) {
    struct sums s = {0, 0};
    if (columns & 3) {
        const uint32_t word = xp_load_end(x, columns, columns & 3);
        ADD(word);
    }
#ifdef XPULP_INSN
    if (columns >= 8)
        __asm__ volatile(
            ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[n], %[length]\n"
            ".insn i 0x0b, 2, t0, %[x], 4\n.insn i 0x0b, 2, t1, %[x], 4\n" DOT("t0") DOT("t1") ".option pop\n"
            : [x] "+r"(x), [squares] "+r"(s.squares), [total] "+r"(s.total)
            : [n] "r"(columns >> 3), [length] "i"(2 * INSTRUCTIONS), [ones] "r"(0x01010101),
              [dot] "i"(IS_SIGNED ? XP_SDOTSP : XP_SDOTUP)
            : "t0", "t1", "memory");
    if (columns & 4) {
        const uint32_t word = xp_load(x);
        ADD(word);
    }
#else
    for (int i = columns >> 2; i > 0; i--, x += 4) {
        const uint32_t word = xp_load(x);
        ADD(word);
    }
#endif
    return s;
}
#undef ADD
#undef DOT

#endif
