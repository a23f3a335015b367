/* 2^t of sixteen floats: 2^t = 2^n * 2^r with n = round(t), and 2^r is a polynomial whose every step is an instruction
 * that is repeated for eight pairs; meanwhile the core makes 2^n of the bits of n. */
#ifndef SNITCH_EXPONENTIAL_H
#define SNITCH_EXPONENTIAL_H

#include "snitch_rows.h"

enum { BATCH = 2 * GROUP, FRACTION_BITS = 23 };

/* Numbers of the steps, both of every pair the same; the first one is the caller's. */
enum { LOG = 1, LOWEST, MAGIC, COEFFICIENTS, STEPS = COEFFICIENTS + 6 };

#define LOG2_E 1.44269504f
#define ROUNDING (12582912.0f + 127) /* 1.5 * 2^23: the lowest bits of a sum with it are n + 127 */
#define LEAST (-127.0f)              /* 2^n becomes 0 */
#define EXPONENTIAL_STEPS \
    LOG2_E, LEAST, ROUNDING, 0.00132764f, 0.00967554f, 0.05550713f, 0.2402212f, 0.69314697f, 1.00000007f

#ifdef __riscv

/* An instruction for all of f8 to f15, or of f24 to f31: frep.o, whose registers are each time those next to the time
 * before, that of the result, of the first operand, of both, or of all. */
#define OF_RESULT(instruction) ".insn i 0x0B, 7, x3, %[each], 0\n .insn r 0x33, 0, " instruction "\n"
#define OF_FIRST(instruction) ".insn i 0x0B, 7, x7, %[each], 0\n .insn r 0x33, 0, " instruction "\n"
#define OF_SECOND(instruction) ".insn i 0x0B, 7, x11, %[each], 0\n .insn r 0x33, 0, " instruction "\n"
#define OF_BOTH(instruction) ".insn i 0x0B, 7, x15, %[each], 0\n .insn r 0x33, 0, " instruction "\n"
#define HORNER(n) OF_BOTH("0x43, f8, f8, f24") "fld f7, 8*" #n "(%[steps])\n" OF_FIRST("0x41, f8, f8, f7")
#define LOAD_24(n, register) "fld " register ", 8*" #n "(%[bits])\n"

/* f8 to f15 become 2^t of f24 to f31; f3 to f7 are used. */
#define POWER_OF_TWO \
    "fld f6, 24(%[steps])\n" OF_FIRST("0x41, f8, f24, f6") /* MAGIC */                                                 \
        "fsd f8, 0(%[bits])\n fsd f9, 8(%[bits])\n fsd f10, 16(%[bits])\n fsd f11, 24(%[bits])\n"                      \
        "fsd f12, 32(%[bits])\n fsd f13, 40(%[bits])\n fsd f14, 48(%[bits])\n fsd f15, 56(%[bits])\n"                  \
        "fmv.x.w %[word], f3\n mv zero, %[word]\n" /* what is stored is in memory */                                   \
        OF_FIRST("0x42, f8, f8, f6") OF_BOTH("0x42, f24, f24, f8") "fld f3, 32(%[steps])\n fld f4, 40(%[steps])\n"     \
        OF_FIRST("0x43, f8, f24, f3") OF_FIRST("0x41, f8, f8, f4") HORNER(6) HORNER(7) HORNER(8) HORNER(9)             \
        "1: lw %[word], 0(%[at])\n lw %[next], 4(%[at])\n addi %[at], %[at], 8\n"                                          \
        "slli %[word], %[word], 23\n slli %[next], %[next], 23\n sw %[word], -8(%[at])\n sw %[next], -4(%[at])\n"        \
        "bne %[at], %[end], 1b\n" LOAD_24(0, "f24") LOAD_24(1, "f25") LOAD_24(2, "f26") LOAD_24(3, "f27")              \
        LOAD_24(4, "f28") LOAD_24(5, "f29") LOAD_24(6, "f30") LOAD_24(7, "f31") OF_BOTH("0x43, f8, f8, f24")

#else

static inline float power_of_two(float t, const float *steps) {
    const float rounded = t + steps[2 * MAGIC], r = t - (rounded - steps[2 * MAGIC]);
    float p = r * steps[2 * COEFFICIENTS], power;
    uint32_t bits;
    for (int j = 1; j < 6; j++) p = (j == 1 ? p : p * r) + steps[2 * (COEFFICIENTS + j)];
    memcpy(&bits, &rounded, sizeof bits);
    bits <<= FRACTION_BITS;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#endif

#endif
