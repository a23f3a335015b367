/* Inner products of one vector, widened to 16 bits, with the rows of a matrix: the integer kernels' inner loop.
 *
 * DOT_T is the type of the matrix's elements. Where DOT_BITS is defined, these have so many bits (see packed.h), and
 * DOT_IS_SIGNED says whether they are signed.
 *
 * Compilers turn such loops into multiply-add instructions on pairs of 16-bit values where the machine has them. Four
 * rows at a time share the loads of the vector. Included by kernel sources, once per instance.
 */
#ifndef DEEPLOY_DOT_H
#define DEEPLOY_DOT_H

#include "packed.h"

/* Elements of a vector at a time, rows, and vectors that are multiplied together: local arrays. Stacks are short where
 * no vector registers are. */
#if defined(__riscv) && !defined(__riscv_vector)
enum { DEPTH = 64, BLOCK = 16, VECTORS = 1 };
#elif defined(__SSE2__) || defined(__ARM_NEON) || defined(__riscv_vector)
enum { DEPTH = 512, BLOCK = 64, VECTORS = 4 };
#else
enum { DEPTH = 512, BLOCK = 64, VECTORS = 1 };
#endif

#ifdef DOT_BITS
enum { IS_PACKED = 1 };
#define ELEMENT(row, i) packed_element((const uint8_t *)(row), i, DOT_BITS, DOT_IS_SIGNED)
#else
enum { IS_PACKED = 0 };
#define ELEMENT(row, i) ((row)[i])
#define DOT_BITS 8
#endif
enum { UNIT = PACKED_UNIT(DOT_BITS), PER_UNIT = PACKED_PER_UNIT(DOT_BITS) };

/* How many elements of DOT_T hold so many elements of a row. */
static inline int stored(int elements) {
    return IS_PACKED ? PACKED_BYTES(elements, DOT_BITS) : elements;
}

/* acc[j] += sum over i of vector[i] * w[j][i], for `rows` rows of w, w_row elements of DOT_T apart. A function of its
 * own: inlined, its sums would leave their registers. */
VECTORISED void dots(int32_t *restrict acc, const int16_t *restrict vector, const DOT_T *restrict w, int w_row,
                     int depth, int rows) {
    const int whole = depth / PER_UNIT, rest = depth % PER_UNIT;
    int j = 0;
    /*@ loop unroll BLOCK; */
    for (; j <= rows - 4; j += 4) {
        const DOT_T *const w0 = w + j * w_row, *const w1 = w0 + w_row, *const w2 = w1 + w_row, *const w3 = w2 + w_row;
        int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        /*@ loop unroll whole; */
        for (int i = 0; i < whole; i++) {
            /*@ loop unroll 8; */
            for (int part = 0; part < PER_UNIT; part++) {
                const int16_t v = vector[i * PER_UNIT + part];
                s0 += v * ELEMENT(w0 + i * UNIT, part);
                s1 += v * ELEMENT(w1 + i * UNIT, part);
                s2 += v * ELEMENT(w2 + i * UNIT, part);
                s3 += v * ELEMENT(w3 + i * UNIT, part);
            }
        }
        /*@ loop unroll 8; */
        for (int part = 0; part < rest; part++) {
            const int16_t v = vector[whole * PER_UNIT + part];
            s0 += v * ELEMENT(w0 + whole * UNIT, part);
            s1 += v * ELEMENT(w1 + whole * UNIT, part);
            s2 += v * ELEMENT(w2 + whole * UNIT, part);
            s3 += v * ELEMENT(w3 + whole * UNIT, part);
        }
        acc[j] += s0, acc[j + 1] += s1, acc[j + 2] += s2, acc[j + 3] += s3;
    }
    /*@ loop unroll 4; */
    for (; j < rows; j++) {
        int32_t s = 0;
        /*@ loop unroll depth; */
        for (int i = 0; i < depth; i++) s += vector[i] * ELEMENT(w + j * w_row, i);
        acc[j] += s;
    }
}

/* The same of four vectors and four rows, which share all loads. Runs whose lengths are whole vector registers need no
 * loop for what is left. */
#define PRODUCTS(row)                      \
    const int16_t y##row = w##row[at + i]; \
    s0##row += x0 * y##row, s1##row += x1 * y##row, s2##row += x2 * y##row, s3##row += x3 * y##row;
#define RUN_OF(count)                                                                     \
    for (int i = 0; i < (count); i++) {                                                   \
        const int16_t x0 = v0[at + i], x1 = v1[at + i], x2 = v2[at + i], x3 = v3[at + i]; \
        PRODUCTS(0)                                                                       \
        PRODUCTS(1)                                                                       \
        PRODUCTS(2)                                                                       \
        PRODUCTS(3)                                                                       \
    }                                                                                     \
    at += (count);
#define ADD_TO(v)                                   \
    acc[v][j] += s##v##0, acc[v][j + 1] += s##v##1; \
    acc[v][j + 2] += s##v##2, acc[v][j + 3] += s##v##3;
VECTORISED void dots_of_4(int32_t (*restrict acc)[BLOCK], const int16_t (*restrict vectors)[DEPTH],
                          const DOT_T *restrict w, int w_row, int depth, int rows) {
    const int16_t *const v0 = vectors[0], *const v1 = vectors[1], *const v2 = vectors[2], *const v3 = vectors[3];
    for (int j = 0; j < rows; j += 4) {
        const DOT_T *const w0 = w + j * w_row, *const w1 = w0 + w_row, *const w2 = w1 + w_row, *const w3 = w2 + w_row;
        int32_t s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
        int32_t s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;
        int at = 0;
        RUN_OF(depth & ~31)
        if (depth & 16) {
            RUN_OF(16)
        }
        if (depth & 8) {
            RUN_OF(8)
        }
        RUN_OF(depth & 7)
        ADD_TO(0)
        ADD_TO(1)
        ADD_TO(2)
        ADD_TO(3)
    }
}

#include "x86.h"
#ifdef HAS_WIDE
#include "dot_x86.h"
#else
#define wide_dots_of_4 dots_of_4 /* never called */
#endif

/* The same of `count` vectors, at most VECTORS. */
static inline void dots_of_vectors(int32_t (*restrict acc)[BLOCK], const int16_t (*restrict vectors)[DEPTH], int count,
                                   const DOT_T *restrict w, int w_row, int depth, int rows) {
    int done = 0;
    if (!IS_PACKED && VECTORS == 4 && count == VECTORS) {
        done = rows & ~3;
        if (sizeof(DOT_T) == 1 && has_wide())
            wide_dots_of_4(acc, vectors, w, w_row, depth, done);
        else
            dots_of_4(acc, vectors, w, w_row, depth, done);
    }
    /*@ loop unroll VECTORS; */
    for (int i = 0; i < count && done < rows; i++)
        dots(acc[i] + done, vectors[i], w + done * w_row, w_row, depth, rows - done);
}

#endif
