/* y = FUNCTION(a, b), of bytes, four elements at a time; FUNCTION is a name of `enum function`.
 *
 * All operands have any strides along six axes. Dense rows, and operands that are one for a row, take 8 instructions
 * for eight elements, comparisons 10, logic 12: loads and stores bound it. Others are loops over elements.
 */
#include "../portable/pairwise.h"

#include "pulp_rows.h"
#include "xpulp.h"

enum {
    IS_SIGNED = (A_T)-1 < 0,
    UNSIGNED = IS_SIGNED ? 0 : XP_UNSIGNED_COMPARISON,
    COMPARED = 1 << 8, /* results are bytes of ones */
    NOT_ZERO = 1 << 9, /* results count as true where they are not 0 */
    FUNCT7 = COMPARED - 1
};

/* What they are made of: funct7 of an instruction, and what becomes of its results. */
enum function {
    larger = IS_SIGNED ? XP_MAX4 : XP_MAX4U,
    smaller = IS_SIGNED ? XP_MIN4 : XP_MIN4U,
    bits_of_both = XP_AND4,
    bits_of_either = XP_OR4,
    bits_that_differ = XP_XOR4,
    equal = COMPARED | XP_EQUAL4,
    differ = COMPARED | XP_DIFFER4,
    less = COMPARED | (XP_LESS4 + UNSIGNED),
    at_most = COMPARED | (XP_AT_MOST4 + UNSIGNED),
    greater = COMPARED | (XP_GREATER4 + UNSIGNED),
    at_least = COMPARED | (XP_AT_LEAST4 + UNSIGNED),
    both = NOT_ZERO | XP_MIN4U,
    either = NOT_ZERO | XP_OR4
};

#define CHOSEN ((int)FUNCTION)

static inline int of_two(int a, int b) {
    switch (FUNCTION) {
        case larger:
            return a > b ? a : b;
        case smaller:
            return a < b ? a : b;
        case bits_of_both:
            return a & b;
        case bits_of_either:
            return a | b;
        case bits_that_differ:
            return a ^ b;
        case equal:
            return a == b;
        case differ:
            return a != b;
        case less:
            return a < b;
        case at_most:
            return a <= b;
        case greater:
            return a > b;
        case at_least:
            return a >= b;
        case both:
            return a && b;
        default:
            return a || b;
    }
}

/* A row of dense elements of y; those of a and of b are dense, or one for all. */
static inline void dense_row(const A_T *a, int a_step, const B_T *b, int b_step, Y_T *y, int count) {
    int done = 0;
    const uint32_t a_all = (uint8_t)a[0] * 0x01010101u, b_all = (uint8_t)b[0] * 0x01010101u;
    const uint32_t *p = a_step ? (const uint32_t *)a : &a_all, *q = b_step ? (const uint32_t *)b : &b_all;
    const int pairs = count >> 3;
    uint8_t *to = (uint8_t *)y;
#define LOAD(to, from, step) ".insn r 0x0b, 7, 0x10, " to ", %[" from "], %[" step "]\n"
#define TWO_LOADS LOAD("t0", "p", "p_step") LOAD("t1", "q", "q_step")
#define LOADS TWO_LOADS LOAD("t2", "p", "p_step") LOAD("t3", "q", "q_step")
#define FIND ".insn r 0x57, 1, %[funct7], t0, t0, t1\n.insn r 0x57, 1, %[funct7], t2, t2, t3\n"
#define TRUE ".insn r 0x57, 1, %[differ], t0, t0, x0\n.insn r 0x57, 1, %[differ], t2, t2, x0\n"
#define ONES "and t0, t0, %[ones]\nand t2, t2, %[ones]\n"
#define STORES ".insn s 0x2b, 2, t0, 4(%[to])\n.insn s 0x2b, 2, t2, 4(%[to])\n"
#define EIGHT_EACH(length, results)                                                                                    \
    XP_BLOCK(BEGIN LOOP("%[n]", length) LOADS FIND results STORES END : [p] "+r"(p), [q] "+r"(q),                      \
             [to] "+r"(to) : [n] "r"(pairs), [p_step] "r"(4 * a_step), [q_step] "r"(4 * b_step),                       \
             [funct7] "i"(CHOSEN & FUNCT7), [differ] "i"(XP_DIFFER4), [ones] "r"(0x01010101) : "t0", "t1", "t2", "t3", \
             "memory")
    if (XPULP_INSN && pairs) {
        if (CHOSEN < COMPARED) EIGHT_EACH(8, "");
        if (CHOSEN & COMPARED) EIGHT_EACH(10, ONES);
        if (CHOSEN & NOT_ZERO) EIGHT_EACH(12, TRUE ONES);
    }
    if (XPULP_INSN) done = count & ~7;
    for (int i = done; i < count; i++) y[i] = (Y_T)of_two(a[i * a_step], b[i * b_step]);
}

static inline void row(const struct pairwise *k, const A_T *a, const B_T *b, Y_T *y) {
    const int count = k->extent[LAST], a_step = k->a_step[LAST], b_step = k->b_step[LAST], y_step = k->y_step[LAST];
    if ((unsigned)a_step <= 1 && (unsigned)b_step <= 1 && y_step == 1) {
        dense_row(a, a_step, b, b_step, y, count);
        return;
    }
    for (int i = 0; i < count; i++) y[i * y_step] = (Y_T)of_two(a[i * a_step], b[i * b_step]);
}

void KERNEL(const struct pairwise *k) {
    int index[AXES] = {0}, a = 0, b = 0, y = 0;
    do {
        row(k, (const A_T *)k->a + a, (const B_T *)k->b + b, (Y_T *)k->y + y);
    } while (next_rows(index, k->extent, k->a_step, &a, k->b_step, &b, k->y_step, &y));
}
