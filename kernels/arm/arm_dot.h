/* Inner products of bytes with rows of a matrix of bytes. Included by kernel sources, once per instance, with the
 * element types VECTOR_T and MATRIX_T. */
#ifndef ARM_DOT_H
#define ARM_DOT_H

#include "arm_simd.h"

enum { VECTORS = 4 };

/* Four elements of a vector, as pairs among those of all VECTORS. */
static inline void widen(const VECTOR_T *x, int depth, uint32_t *pairs) {
    for (const VECTOR_T *const end = x + depth; x != end; x += 4, pairs += 2 * VECTORS) {
        const uint32_t word = arm_word(x);
        pairs[0] = ARM_EVEN(VECTOR_T, word), pairs[VECTORS] = ARM_ODD(VECTOR_T, word);
    }
}

/* sums[j] = vector j, widened, times w: sixteen products for each word of w that is loaded and widened, in 22 cycles of
 * a Cortex-M4. */
static inline void dots_of_vectors(const uint32_t *pairs, const MATRIX_T *w, int depth, int32_t sums[VECTORS]) {
    struct arm_four_sums s = {0, 0, 0, 0};
    const void *at = w;
    if (depth & 4) ARM_VECTORS(MATRIX_T)(&s, &pairs, &at);
    for (const void *const end = w + depth; at != end;) {
        ARM_VECTORS(MATRIX_T)(&s, &pairs, &at);
        ARM_VECTORS(MATRIX_T)(&s, &pairs, &at);
    }
    sums[0] = s.s0, sums[1] = s.s1, sums[2] = s.s2, sums[3] = s.s3;
}

enum { ROWS = 4 };

/* sums[j] = x times row j of w, of ROWS rows that are `pitch` apart. */
static inline void dots_of_rows(const VECTOR_T *x, const MATRIX_T *w, int pitch, int depth, int32_t sums[ROWS]) {
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    const VECTOR_T *const end = x + (depth & ~3);
    const MATRIX_T *w2 = w + 2 * pitch;
    for (; x != end; x += 4, w += 4, w2 += 4) {
        const uint32_t word = arm_word(x), even = ARM_EVEN(VECTOR_T, word), odd = ARM_ODD(VECTOR_T, word);
        s0 = ARM_FOUR(MATRIX_T, s0, even, odd, w), s1 = ARM_FOUR(MATRIX_T, s1, even, odd, w + pitch);
        s2 = ARM_FOUR(MATRIX_T, s2, even, odd, w2), s3 = ARM_FOUR(MATRIX_T, s3, even, odd, w2 + pitch);
    }
    for (int i = 0; i < (depth & 3); i++) {
        s0 += x[i] * w[i], s1 += x[i] * w[i + pitch];
        s2 += x[i] * w2[i], s3 += x[i] * w2[i + pitch];
    }
    sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;
}

/* y[j] for all rows of w, the first of which is output channel `channel`. */
OUT_OF_LINE void multiply_rows(const VECTOR_T *x, const MATRIX_T *w, int pitch, int depth, int rows, Y_T *y,
                               const struct epilogue *e, int channel) {
    int32_t sums[ROWS];
    for (; rows >= ROWS; rows -= ROWS, w += ROWS * pitch, y += ROWS, channel += ROWS) {
        dots_of_rows(x, w, pitch, depth, sums);
        for (int i = 0; i < ROWS; i++) y[i] = arm_finish(sums[i], arm_channel(e, channel + i), e);
    }
    for (; rows > 0; rows--, w += pitch, channel++) {
        dots_of_rows(x, w, 0, depth, sums);
        *y++ = arm_finish(sums[0], arm_channel(e, channel), e);
    }
}

#endif
