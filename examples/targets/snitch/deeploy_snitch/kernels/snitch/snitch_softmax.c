/* Softmax of float rows, sixteen elements at a time.
 *
 * exp(d) = 2^n * 2^r with n = round(d * log2(e)): the latter is a polynomial, whose every step is an instruction that
 * is repeated for eight pairs; meanwhile the core makes 2^n of the bits of n. What lies at no multiple of 8 bytes or is
 * less than sixteen elements goes through a copy.
 */
#include "../portable/softmax.h"

#include <math.h>

#include "../portable/loops.h"
#include "snitch_rows.h"

enum { BATCH = 2 * GROUP, FRACTION_BITS = 23 };

#define LOG2_E 1.44269504f
#define ROUNDING (12582912.0f + 127) /* 1.5 * 2^23: the lowest bits of a sum with it are n + 127 */
#define LEAST (-127.0f)              /* 2^n becomes 0 */

/* What the steps of an exponential need, both of every pair the same. */
enum { MAX, LOG, LOWEST, MAGIC, COEFFICIENTS, STEPS = COEFFICIENTS + 6 };

static void set_steps(float *steps) {
    const float of[STEPS] = {[LOG] = LOG2_E, [LOWEST] = LEAST, [MAGIC] = ROUNDING, [COEFFICIENTS] = 0.00132764f,
                             0.00967554f,    0.05550713f,      0.2402212f,         0.69314697f,
                             1.00000007f};
    for (int i = 0; i < STEPS; i++) steps[2 * i] = steps[2 * i + 1] = of[i];
}

#ifdef __riscv

/* An instruction for all of f8 to f15, or of f24 to f31: frep.o, whose registers are each time those next to the time
 * before, that of the result, of the first operand, of both. */
#define OF_RESULT(instruction) ".insn i 0x0B, 7, x3, %[each], 0\n .insn r 0x33, 0, " instruction "\n"
#define OF_FIRST(instruction) ".insn i 0x0B, 7, x7, %[each], 0\n .insn r 0x33, 0, " instruction "\n"
#define OF_BOTH(instruction) ".insn i 0x0B, 7, x15, %[each], 0\n .insn r 0x33, 0, " instruction "\n"
#define HORNER(n) OF_BOTH("0x43, f8, f8, f24") "fld f7, 8*" #n "(%[steps])\n" OF_FIRST("0x41, f8, f8, f7")
#define LOAD_24(n, register) "fld " register ", 8*" #n "(%[bits])\n"

/* y = exp(x - max), 16 of each at multiples of 8 bytes; x is the first stream. */
static inline void exponentials(struct streams *streams, float *y, const float *steps) {
    uint32_t bits[BATCH] __attribute__((aligned(8)));
    uint32_t *at = bits, word;
    (void)streams;
    __asm__ volatile(
        "fld f3, 0(%[steps])\n fld f4, 8(%[steps])\n fld f5, 16(%[steps])\n fld f6, 24(%[steps])\n" /* MAX to MAGIC */
        OF_RESULT("0x42, f24, ft0, f3") OF_FIRST("0x43, f24, f24, f4") OF_FIRST("0x46, f24, f24, f5")
        OF_FIRST("0x41, f8, f24, f6")
        "fsd f8, 0(%[bits])\n fsd f9, 8(%[bits])\n fsd f10, 16(%[bits])\n fsd f11, 24(%[bits])\n"
        "fsd f12, 32(%[bits])\n fsd f13, 40(%[bits])\n fsd f14, 48(%[bits])\n fsd f15, 56(%[bits])\n"
        "fmv.x.w %[word], f3\n mv zero, %[word]\n" /* what is stored is in memory */
        OF_FIRST("0x42, f8, f8, f6") OF_BOTH("0x42, f24, f24, f8")
        "fld f3, 32(%[steps])\n fld f4, 40(%[steps])\n"
        OF_FIRST("0x43, f8, f24, f3") OF_FIRST("0x41, f8, f8, f4")
        HORNER(6) HORNER(7) HORNER(8) HORNER(9)
        "1: lw %[word], 0(%[at])\n slli %[word], %[word], 23\n sw %[word], 0(%[at])\n addi %[at], %[at], 4\n"
        "bne %[at], %[end], 1b\n"
        LOAD_24(0, "f24") LOAD_24(1, "f25") LOAD_24(2, "f26") LOAD_24(3, "f27")
        LOAD_24(4, "f28") LOAD_24(5, "f29") LOAD_24(6, "f30") LOAD_24(7, "f31")
        OF_BOTH("0x43, f8, f8, f24") SUMS_8(STORE_SUM)
        : [at] "+&r"(at), [word] "=&r"(word)
        : [each] "r"(GROUP - 1), [steps] "r"(steps), [bits] "r"(bits), [end] "r"(bits + BATCH), [y] "r"(y)
        : CLOBBERED, "f3", "f4", "f5", "f6", "f7");
}

/* y = x * factor, 16 of each. */
static inline void scale_batch(struct streams *streams, float *y, float factor) {
    (void)streams;
    __asm__ volatile(OF_RESULT("0x43, f8, ft0, %[factor]") SUMS_8(STORE_SUM)
                     :
                     : [each] "r"(GROUP - 1), [factor] "f"(pair_both(factor)), [y] "r"(y)
                     : CLOBBERED);
}

#else

static inline void exponentials(struct streams *streams, float *y, const float *steps) {
    for (int i = 0; i < BATCH; i += 2) pair_store(y + i, stream_next(streams, FIRST));
    for (int i = 0; i < BATCH; i++) {
        const float t = fmaxf((y[i] - steps[2 * MAX]) * steps[2 * LOG], steps[2 * LOWEST]);
        const float rounded = t + steps[2 * MAGIC], r = t - (rounded - steps[2 * MAGIC]);
        float p = r * steps[2 * COEFFICIENTS], power;
        uint32_t bits;
        for (int j = 1; j < 6; j++) p = (j == 1 ? p : p * r) + steps[2 * (COEFFICIENTS + j)];
        memcpy(&bits, &rounded, sizeof bits);
        bits <<= FRACTION_BITS;
        memcpy(&power, &bits, sizeof power);
        y[i] = p * power;
    }
}

static inline void scale_batch(struct streams *streams, float *y, float factor) {
    for (int i = 0; i < BATCH; i += 2) pair_store(y + i, pair_mul(stream_next(streams, FIRST), pair_both(factor)));
}

#endif

/* Batches of a row at a multiple of 8 bytes. */
static void exponentials_of(const float *x, float *y, int batches, const float *steps) {
    struct streams streams;
    if (batches <= 0) return;
    STREAM_BEGIN(&streams, FIRST, 1, {(float *)x, 1, {batches * GROUP}, {2}});
    streams_on();
    for (int i = 0; i < batches; i++) exponentials(&streams, y + i * BATCH, steps);
    streams_off();
}

static void scale(float *y, int batches, float factor) {
    struct streams streams;
    if (batches <= 0) return;
    STREAM_BEGIN(&streams, FIRST, 1, {y, 1, {batches * GROUP}, {2}});
    streams_on();
    for (int i = 0; i < batches; i++) scale_batch(&streams, y + i * BATCH, factor);
    streams_off();
}

/* At most 16 of a row, through copies. */
static void copied(const float *x, float *y, int count, const float *steps) {
    float from[BATCH] __attribute__((aligned(8))), to[BATCH] __attribute__((aligned(8)));
    for (int i = 0; i < BATCH; i++) from[i] = i < count ? x[i] : x[0];
    exponentials_of(from, to, 1, steps);
    for (int i = 0; i < count; i++) y[i] = to[i];
}

static float largest(const float *x, int columns) {
    const int before = is_paired(x) ? 0 : 1, pairs = (columns - before) / 2;
    float max = x[0], pair_max_of[2] __attribute__((aligned(8)));
    if (columns > 1) max = fmaxf(max, x[columns - 1]);
    if (pairs > 0) {
        pair_store(pair_max_of, row_largest(x + before, pairs, pair_both(max), pair_both(0)));
        max = fmaxf(pair_max_of[0], pair_max_of[1]);
    }
    return max;
}

static float total(const float *y, int columns) {
    const int before = is_paired(y) || columns == 0 ? 0 : 1, pairs = (columns - before) / 2;
    float sum = before ? y[0] : 0;
    sum += pair_sum(row_sum(y + before, pairs, pair_both(0), pair_both(0)));
    return before + 2 * pairs < columns ? sum + y[columns - 1] : sum;
}

static void row(const float *x, float *y, int columns, float *steps) {
    const int whole = is_paired(y) ? columns / BATCH : 0, direct = is_paired(x) ? whole : 0;
    steps[2 * MAX] = steps[2 * MAX + 1] = largest(x, columns);
    exponentials_of(x, y, direct, steps);
    for (int i = direct * BATCH; i < columns; i += BATCH)
        copied(x + i, y + i, columns - i < BATCH ? columns - i : BATCH, steps);
    const float factor = 1 / total(y, columns);
    scale(y, whole, factor);
    for (int i = whole * BATCH; i < columns; i++) y[i] *= factor;
}

void KERNEL(const struct softmax *k) {
    float steps[2 * STEPS] __attribute__((aligned(8)));
    int index[AXES] = {0};
    set_steps(steps);
    do {
        const float *const x = (const float *)k->x + row_offset(index, k->x_step);
        row(x, (float *)k->y + row_offset(index, k->y_step), k->extent[LAST], steps);
    } while (next_row(index, k->extent));
}
