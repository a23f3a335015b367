/* Sums over a dense row of bytes, X_T: of its squares, and of its elements where sources say WITH_TOTAL. Squares count
 * modulo 2^32. A loop of 4 or 6 instructions for eight elements. */
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

static inline struct sums add_word(struct sums s, uint32_t word) {
    return (struct sums){dot4(word, word, s.squares), WITH_TOTAL ? dot4(word, 0x01010101, s.total) : 0};
}

#define ADD_WORD(word)                                                            \
    IF("%[with_total]", ".insn r 0x57, 1, %[dot], %[total], " word ", %[ones]\n") \
    ".insn r 0x57, 1, %[dot], %[squares], " word ", " word "\n"

static inline struct sums sums_of(const X_T *x, int columns) {
    struct sums s = {0, 0};
    if (columns & 3) s = add_word(s, xp_load_end(x, columns, columns & 3));
    if (XPULP_INSN) {
        if (columns >= 8)
            XP_BLOCK(BEGIN ".insn i 0x7b, 4, x0, %[n], %[length]\n" XP_LOAD("t0", "x") XP_LOAD("t1", "x") ADD_WORD("t0")
                         ADD_WORD("t1") END : [x] "+r"(x),
                     [squares] "+r"(s.squares), [total] "+r"(s.total) : [n] "r"(columns >> 3),
                     [length] "i"(2 * (4 + 2 * WITH_TOTAL)), [ones] "r"(0x01010101),
                     [dot] "i"(IS_SIGNED ? XP_SDOTSP : XP_SDOTUP), [with_total] "i"(WITH_TOTAL) : "t0", "t1", "memory");
        return columns & 4 ? add_word(s, xp_load(x)) : s;
    }
    for (int i = columns >> 2; i > 0; i--, x += 4) s = add_word(s, xp_load(x));
    return s;
}

#endif
