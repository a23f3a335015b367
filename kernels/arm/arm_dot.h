/* Inner products of two vectors of bytes with the rows of a matrix of bytes, two rows at a time: 16 products for four
 * loads. Included by kernel sources, once per instance, with the element types VECTOR_T and MATRIX_T. */
#ifndef ARM_DOT_H
#define ARM_DOT_H

#include "arm_simd.h"

enum { DEPTH = 512, BLOCK = 32 }; /* elements of a vector, and rows of the matrix, at a time: 1.25 KB of stack */

/* acc0[j] += a0 . w[j], acc1[j] += a1 . w[j] for `rows` rows that are `pitch` apart. */
static void dots(int32_t *restrict acc0, int32_t *restrict acc1, const VECTOR_T *a0, const VECTOR_T *a1,
                 const MATRIX_T *w, int pitch, int depth, int rows) {
    for (int j = 0; j < rows; j += 2) {
        const MATRIX_T *const w0 = w + j * pitch, *const w1 = j + 1 < rows ? w0 + pitch : w0;
        int32_t s00 = 0, s01 = 0, s10 = 0, s11 = 0;
        int i = 0;
        for (; i + 4 <= depth; i += 4) {
            const uint32_t x0 = arm_word(a0 + i), x1 = arm_word(a1 + i), y0 = arm_word(w0 + i), y1 = arm_word(w1 + i);
            const uint32_t x0e = ARM_EVEN(VECTOR_T, x0), x1e = ARM_EVEN(VECTOR_T, x1), y0e = ARM_EVEN(MATRIX_T, y0),
                           y1e = ARM_EVEN(MATRIX_T, y1);
            s00 = arm_multiply_add(s00, x0e, y0e), s01 = arm_multiply_add(s01, x0e, y1e);
            s10 = arm_multiply_add(s10, x1e, y0e), s11 = arm_multiply_add(s11, x1e, y1e);
            const uint32_t x0o = ARM_ODD(VECTOR_T, x0), x1o = ARM_ODD(VECTOR_T, x1), y0o = ARM_ODD(MATRIX_T, y0),
                           y1o = ARM_ODD(MATRIX_T, y1);
            s00 = arm_multiply_add(s00, x0o, y0o), s01 = arm_multiply_add(s01, x0o, y1o);
            s10 = arm_multiply_add(s10, x1o, y0o), s11 = arm_multiply_add(s11, x1o, y1o);
        }
        for (; i < depth; i++) {
            s00 += a0[i] * w0[i], s01 += a0[i] * w1[i];
            s10 += a1[i] * w0[i], s11 += a1[i] * w1[i];
        }
        acc0[j] += s00, acc1[j] += s10;
        if (j + 1 < rows) acc0[j + 1] += s01, acc1[j + 1] += s11;
    }
}

#endif
