/* Softmax of float rows, sixteen elements at a time.
 *
 * exp(d) = 2^n * 2^r with n = round(d * log2(e)): the latter is a polynomial, whose every step is an instruction that
 * is repeated for eight pairs; meanwhile the core makes 2^n of the bits of n. What lies at no multiple of 8 bytes or is
 * less than sixteen elements goes through a copy.
 */
#include "../portable/softmax.h"

#include <math.h>

#include "../portable/loops.h"
#include "snitch_exponential.h"

enum { MAX }; /* the first of the numbers of steps */

static void set_steps(float *steps) {
    const float of[STEPS] = {0, EXPONENTIAL_STEPS};
    for (int i = 0; i < STEPS; i++) steps[2 * i] = steps[2 * i + 1] = of[i];
}

#ifdef __riscv

/* y = exp(x - max), 16 of each at multiples of 8 bytes; x is the first stream. */
static inline void exponentials(struct streams *streams, float *y, const float *steps) {
    uint32_t bits[BATCH] __attribute__((aligned(8)));
    uint32_t *at = bits, word, next;
    (void)streams;
    __asm__ volatile("fld f3, 0(%[steps])\n fld f4, 8(%[steps])\n fld f5, 16(%[steps])\n" /* MAX to LOWEST */
                     OF_RESULT("0x42, f24, ft0, f3") OF_FIRST("0x43, f24, f24, f4") OF_FIRST("0x46, f24, f24, f5")
                         POWER_OF_TWO SUMS_8(STORE_SUM)
                     : [at] "+&r"(at), [word] "=&r"(word), [next] "=&r"(next)
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
    for (int i = 0; i < BATCH; i++)
        y[i] = power_of_two(fmaxf((y[i] - steps[2 * MAX]) * steps[2 * LOG], steps[2 * LOWEST]), steps);
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
