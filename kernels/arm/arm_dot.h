/* Inner products of bytes with filters of bytes, which lie in twos (ARM_TWO_FILTERS), the last alone where there is
 * one. Included by kernel sources, once per instance, with the element types VECTOR_T and MATRIX_T. */
#ifndef ARM_DOT_H
#define ARM_DOT_H

#include "arm_simd.h"

enum { VECTORS = 4 };

/* Elements of a vector, as pairs among those of all VECTORS: of four, the even ones, then the odd ones. Returns where
 * the next ones lie. */
static inline uint32_t *widen_here(const VECTOR_T *x, int depth, uint32_t *pairs) {
#pragma GCC unroll 2
    for (const VECTOR_T *const end = x + (depth & ~7); x != end; x += 8, pairs += 4 * VECTORS) {
        const uint32_t word = arm_word(x), next = arm_word(x + 4);
        pairs[0] = ARM_EVEN(VECTOR_T, word), pairs[VECTORS] = ARM_ODD(VECTOR_T, word);
        pairs[2 * VECTORS] = ARM_EVEN(VECTOR_T, next), pairs[3 * VECTORS] = ARM_ODD(VECTOR_T, next);
    }
    if (depth & 4) {
        const uint32_t word = arm_word(x);
        pairs[0] = ARM_EVEN(VECTOR_T, word), pairs[VECTORS] = ARM_ODD(VECTOR_T, word);
        pairs += 2 * VECTORS;
    }
    return pairs;
}

OUT_OF_LINE uint32_t *widen(const VECTOR_T *x, int depth, uint32_t *pairs) {
    return widen_here(x, depth, pairs);
}

/* Pairs of `depth` elements that have the same value. */
static inline uint32_t *fill_pairs(int value, int depth, uint32_t *pairs) {
    const uint32_t pair = (uint32_t)(uint16_t)value * 0x10001u;
    for (; depth > 0; depth -= 4, pairs += 2 * VECTORS) pairs[0] = pair, pairs[VECTORS] = pair;
    return pairs;
}

/* low, high += vectors, widened, times two filters: of four elements the words have the bytes 0 and 2 of both, then 1
 * and
 * 3. Sixteen products in 17 cycles of a Cortex-M4. Returns what lies behind the filters. */
static inline const MATRIX_T *dots_of_two_filters(const uint32_t *pairs, const MATRIX_T *w, int depth,
                                                  struct arm_four_sums *low, struct arm_four_sums *high) {
    struct arm_four_sums a = *low, b = *high;
    const struct arm_bytes *words = (const struct arm_bytes *)w;
    for (int rest = depth & 12; rest; rest -= 4, words += 2, pairs += 2 * VECTORS) {
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            arm_same_filters(&b, pairs + 4 * i + 2, ARM_FILTERS(MATRIX_T)(&a, pairs + 4 * i, words + i));
    }
    for (const struct arm_bytes *const end = words + (depth & ~15) / 2; words != end;
         words += 8, pairs += 8 * VECTORS) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            arm_same_filters(&b, pairs + 4 * i + 2, ARM_FILTERS(MATRIX_T)(&a, pairs + 4 * i, words + i));
    }
    *low = a, *high = b;
    return (const MATRIX_T *)words;
}

/* The same of the first vector alone. */
static inline void dots_of_pair(const uint32_t *pairs, const MATRIX_T *w, int depth, int32_t *sum, int32_t *next) {
    int32_t s = *sum, t = *next;
    for (const MATRIX_T *const end = w + 2 * depth; w != end; w += 8, pairs += 2 * VECTORS) {
        const uint32_t word = arm_word(w), odd = arm_word(w + 4), x = pairs[0], x_odd = pairs[VECTORS];
        s = arm_multiply_add(s, x, ARM_EVEN(MATRIX_T, word)), t = arm_multiply_add(t, x, ARM_ODD(MATRIX_T, word));
        s = arm_multiply_add(s, x_odd, ARM_EVEN(MATRIX_T, odd)), t = arm_multiply_add(t, x_odd, ARM_ODD(MATRIX_T, odd));
    }
    *sum = s, *next = t;
}

/* The same with a filter that lies alone. */
static inline int32_t dot_of_one(const uint32_t *pairs, const MATRIX_T *w, int depth, int32_t sum) {
    for (int i = 0; i < depth; i += 4, w += 4, pairs += 2 * VECTORS) {
        const uint32_t word = arm_word(w);
        sum = arm_multiply_add(sum, pairs[0], ARM_EVEN(MATRIX_T, word));
        sum = arm_multiply_add(sum, pairs[VECTORS], ARM_ODD(MATRIX_T, word));
    }
    return sum;
}

/* All filters from w on, the first of which is output channel `channel`, at four positions, `step` outputs apart. */
OUT_OF_LINE void multiply_vectors(const uint32_t *pairs, const MATRIX_T *w, int depth, int filters, Y_T *y, int step,
                                  const struct epilogue *given, int channel) {
    const struct epilogue copy = *given, *const e = &copy; /* which no output overwrites */
    for (const int end = channel + filters - 1; channel < end; channel += 2, y += 2) {
        const int32_t first = arm_first(arm_channel(e, channel)), second = arm_first(arm_channel(e, channel + 1));
        struct arm_four_sums a = {first, second, first, second}, b = a;
        w = dots_of_two_filters(pairs, w, depth, &a, &b);
        arm_forget(); /* rather than to keep constants on the stack */
        const struct arm_channel c = arm_channel(e, channel), d = arm_channel(e, channel + 1);
        const Y_T a0 = arm_finish(a.s0, c, e), a1 = arm_finish(a.s1, d, e), a2 = arm_finish(a.s2, c, e);
        const Y_T a3 = arm_finish(a.s3, d, e), b0 = arm_finish(b.s0, c, e), b1 = arm_finish(b.s1, d, e);
        const Y_T b2 = arm_finish(b.s2, c, e), b3 = arm_finish(b.s3, d, e);
        Y_T *to = y;
        to[0] = a0, to[1] = a1, to += step;
        to[0] = a2, to[1] = a3, to += step;
        to[0] = b0, to[1] = b1, to += step;
        to[0] = b2, to[1] = b3;
    }
    if (filters & 1) {
        const struct arm_channel c = arm_channel(e, channel);
        for (int i = 0; i < VECTORS; i++, y += step)
            y[0] = arm_finish(dot_of_one(pairs + i, w, depth, arm_first(c)), c, e);
    }
}

/* The same at the first position alone. */
OUT_OF_LINE void multiply_vector(const uint32_t *pairs, const MATRIX_T *w, int depth, int filters, Y_T *y,
                                 const struct epilogue *given, int channel) {
    const struct epilogue copy = *given, *const e = &copy;
    for (const int end = channel + filters - 1; channel < end; channel += 2, w += 2 * depth, y += 2) {
        const struct arm_channel c = arm_channel(e, channel), d = arm_channel(e, channel + 1);
        int32_t first = arm_first(c), second = arm_first(d);
        dots_of_pair(pairs, w, depth, &first, &second);
        y[0] = arm_finish(first, c, e), y[1] = arm_finish(second, d, e);
    }
    if (filters & 1) {
        const struct arm_channel c = arm_channel(e, channel);
        y[0] = arm_finish(dot_of_one(pairs, w, depth, arm_first(c)), c, e);
    }
}

#endif
