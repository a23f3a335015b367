/* Inner products of one vector, widened to 16 bits, with the rows of a matrix: the integer kernels' inner loop.
 *
 * DOT_T is the type of the matrix's elements. Where DOT_BITS is defined, its bytes hold several of so many bits, the
 * first in the lowest; rows are whole bytes, and DOT_IS_SIGNED says whether elements are signed.
 *
 * Compilers turn such loops into multiply-add instructions on pairs of 16-bit values where the machine has them. Four
 * rows at a time share the loads of the vector. Included by kernel sources, once per instance.
 */
#ifndef DEEPLOY_DOT_H
#define DEEPLOY_DOT_H

#include "packed.h"

/* Elements of a vector at a time, and rows: local arrays. Stacks are short where no vector registers are. */
#if defined(__riscv) && !defined(__riscv_vector)
enum { DEPTH = 64, BLOCK = 16 };
#else
enum { DEPTH = 512, BLOCK = 64 };
#endif

#ifdef DOT_BITS
enum { PER_UNIT = 8 / DOT_BITS };

static inline int element(unsigned byte, int before) {
    return packed_element(byte, before, DOT_BITS, DOT_IS_SIGNED);
}
#else
enum { PER_UNIT = 1 };

static inline int element(DOT_T value, int before) {
    return (void)before, value;
}
#endif

/* What so many elements are stored in: bytes, or elements that are none. */
static inline int units(int elements) {
    return (elements + PER_UNIT - 1) / PER_UNIT;
}

/* acc[j] += sum over i of vector[i] * w[j][i], for `rows` rows of w, so many units apart. */
static inline void dots(int32_t *restrict acc, const int16_t *restrict vector, const DOT_T *restrict w, int w_row,
                        int depth, int rows) {
    const int whole = depth / PER_UNIT, rest = depth % PER_UNIT;
    int j = 0;
    for (; j + 4 <= rows; j += 4) {
        const DOT_T *const w0 = w + j * w_row, *const w1 = w0 + w_row, *const w2 = w1 + w_row, *const w3 = w2 + w_row;
        int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (int i = 0; i < whole; i++) {
            for (int part = 0; part < PER_UNIT; part++) {
                const int16_t v = vector[i * PER_UNIT + part];
                s0 += v * element(w0[i], part);
                s1 += v * element(w1[i], part);
                s2 += v * element(w2[i], part);
                s3 += v * element(w3[i], part);
            }
        }
        for (int part = 0; part < rest; part++) {
            const int16_t v = vector[whole * PER_UNIT + part];
            s0 += v * element(w0[whole], part);
            s1 += v * element(w1[whole], part);
            s2 += v * element(w2[whole], part);
            s3 += v * element(w3[whole], part);
        }
        acc[j] += s0, acc[j + 1] += s1, acc[j + 2] += s2, acc[j + 3] += s3;
    }
    for (; j < rows; j++) {
        int32_t s = 0;
        for (int i = 0; i < depth; i++) s += vector[i] * element(w[j * w_row + i / PER_UNIT], i % PER_UNIT);
        acc[j] += s;
    }
}

#endif
