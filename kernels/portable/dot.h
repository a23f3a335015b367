/* Inner products of one vector, widened to 16 bits, with the rows of a matrix: the integer kernels' inner loop.
 *
 * Compilers turn such loops into multiply-add instructions on pairs of 16-bit values where the machine has them. Four
 * rows at a time share the loads of the vector. Included by kernel sources, once per instance.
 */
#ifndef DEEPLOY_DOT_H
#define DEEPLOY_DOT_H

#include <stdint.h>

/* Elements of a vector at a time, and rows: local arrays. Stacks are short where no vector registers are. */
#if defined(__riscv) && !defined(__riscv_vector)
enum { DEPTH = 64, BLOCK = 16 };
#else
enum { DEPTH = 512, BLOCK = 64 };
#endif

/* acc[j] += sum over i of vector[i] * w[j * w_row + i], for `rows` rows. */
static inline void dots(int32_t *restrict acc, const int16_t *restrict vector, const DOT_T *restrict w, int w_row,
                        int depth, int rows) {
    int j = 0;
    for (; j + 4 <= rows; j += 4) {
        const DOT_T *const w0 = w + j * w_row, *const w1 = w0 + w_row, *const w2 = w1 + w_row, *const w3 = w2 + w_row;
        int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (int i = 0; i < depth; i++) {
            s0 += vector[i] * w0[i];
            s1 += vector[i] * w1[i];
            s2 += vector[i] * w2[i];
            s3 += vector[i] * w3[i];
        }
        acc[j] += s0, acc[j + 1] += s1, acc[j + 2] += s2, acc[j + 3] += s3;
    }
    for (; j < rows; j++) {
        int32_t s = 0;
        for (int i = 0; i < depth; i++) s += vector[i] * w[j * w_row + i];
        acc[j] += s;
    }
}

#endif
