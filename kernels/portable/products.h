/* The inner loop of products whose neighbouring output channels are neighbours in memory. Needs X_T and W_T,
 * and W_FROM where an element of w is a float in 16 bits.
 *
 * One function per width, compiled on its own and with the offset into w added up rather than multiplied: compilers
 * then keep the accumulators in vector registers. (Inlined, gcc 12 unrolls the narrow loops first, vectorises over the
 * reduction instead, and is ten times slower.)
 */
#ifndef DEEPLOY_PRODUCTS_H
#define DEEPLOY_PRODUCTS_H

#include <stddef.h>

#include "block.h"
#include "weights.h"

#define ACCUMULATE(name, ...)                                                                                \
    VECTORISED void name(ACC_T *restrict acc, const X_T *x, int x_step, const W_T *w, int w_step, int count, \
                         int width) {                                                                        \
        const int lanes = __VA_ARGS__;                                                                       \
        ptrdiff_t at = 0;                                                                                    \
        (void)width;                                                                                         \
        /*@ loop unroll count; */                                                                            \
        for (int i = 0; i < count; i++, at += w_step) {                                                      \
            const ACC_T value = (ACC_T)x[i * x_step];                                                        \
            const W_T *row = w + at;                                                                         \
            /*@ loop unroll EXACT; */                                                                        \
            for (int j = 0; j < lanes; j++) acc[j] += value * WEIGHT(row[j]);                                \
        }                                                                                                    \
    }
ACCUMULATE(accumulate_64, 64)
ACCUMULATE(accumulate_32, 32)
ACCUMULATE(accumulate_16, 16)
ACCUMULATE(accumulate_8, 8)
ACCUMULATE(accumulate_any, width)
#undef ACCUMULATE

/* acc[j] += sum over i < count of x[i * x_step] * w[i * w_step + j], for j < lanes; an x_step of 0 repeats x. */
static inline void accumulate(ACC_T *acc, const X_T *x, int x_step, const W_T *w, int w_step, int count, int lanes) {
    if (LANES > 16 && lanes == 64)
        accumulate_64(acc, x, x_step, w, w_step, count, lanes);
    else if (LANES > 16 && lanes == 32)
        accumulate_32(acc, x, x_step, w, w_step, count, lanes);
    else if (LANES > 8 && lanes == 16)
        accumulate_16(acc, x, x_step, w, w_step, count, lanes);
    else if (lanes == 8)
        accumulate_8(acc, x, x_step, w, w_step, count, lanes);
    else
        accumulate_any(acc, x, x_step, w, w_step, count, lanes);
}

/* Floats at several positions at once, which share the loads of w: their sums stay in vector registers. */
#if defined(ACC_IS_FLOAT) && !defined(W_FROM) && defined(__GNUC__) && (defined(__SSE2__) || defined(__ARM_NEON))
#ifdef __AVX512F__
enum { HAS_POSITIONS = 1, POSITIONS = 8 };
#else
enum { HAS_POSITIONS = 1, POSITIONS = 4 };
#endif

/* A product and its sum are one instruction where the build says that the machine has one. */
#if defined(BY_MACHINE)
#define FUSED(...) VECTORISED_FOR(target(__VA_ARGS__))
#elif defined(__clang__) || !defined(__FMA__)
#define FUSED(...) VECTORISED
#else
#define FUSED(...) static __attribute__((noinline, unused, optimize("O3", "fp-contract=fast")))
#endif

#define ACCUMULATE_ALL(machine, name, bytes, lanes)                                                             \
    FUSED(machine)                                                                                              \
    void name(float *acc, const float *x, ptrdiff_t x_next, ptrdiff_t x_step, const float *w, ptrdiff_t w_step, \
              int count) {                                                                                      \
        typedef float vector __attribute__((vector_size(bytes), aligned(4), may_alias));                        \
        enum { EACH = (bytes) / 4, VECTORS = (lanes) / EACH };                                                  \
        vector sum[POSITIONS][VECTORS];                                                                         \
        for (int p = 0; p < POSITIONS; p++)                                                                     \
            for (int v = 0; v < VECTORS; v++) sum[p][v] = *(const vector *)(acc + p * LANES + v * EACH);        \
        for (int i = 0; i < count; i++, x += x_step, w += w_step) {                                             \
            vector row[VECTORS];                                                                                \
            for (int v = 0; v < VECTORS; v++) row[v] = *(const vector *)(w + v * EACH);                         \
            for (int p = 0; p < POSITIONS; p++)                                                                 \
                for (int v = 0; v < VECTORS; v++) sum[p][v] += x[p * x_next] * row[v];                          \
        }                                                                                                       \
        for (int p = 0; p < POSITIONS; p++)                                                                     \
            for (int v = 0; v < VECTORS; v++) *(vector *)(acc + p * LANES + v * EACH) = sum[p][v];              \
    }
#if defined(__AVX__) && !defined(BY_MACHINE)
ACCUMULATE_ALL("avx2", accumulate_all_8, 32, 8)
#else
ACCUMULATE_ALL("sse2", accumulate_all_8, 16, 8)
#endif
#if defined(__AVX512F__) && !defined(BY_MACHINE)
ACCUMULATE_ALL("avx512f", accumulate_all_16, 64, 16)
#elif defined(__AVX__) || defined(BY_MACHINE)
ACCUMULATE_ALL("avx2", accumulate_all_16, 32, 16)
#endif
#if defined(__AVX512F__) || defined(BY_MACHINE)
ACCUMULATE_ALL("avx512f", accumulate_all_32, 64, 32)
#endif

/* The most lanes at once. */
static inline int widest(void) {
#if defined(BY_MACHINE)
    return __builtin_cpu_supports("avx512f") ? 32 : __builtin_cpu_supports("avx2") ? 16 : 8;
#elif defined(__AVX512F__)
    return 32;
#elif defined(__AVX__)
    return 16;
#else
    return 8;
#endif
}

/* acc[p][j] += sum over i < count of x[p * x_next + i * x_step] * w[i * w_step + j], for j < lanes, a multiple of 8. */
static inline void accumulate_all(float (*acc)[LANES], const float *x, int x_next, int x_step, const float *w,
                                  int w_step, int count, int lanes) {
    const int most = widest(), step = lanes < most ? lanes : most;
    for (int j = 0; j < lanes; j += step) {
#if defined(__AVX512F__) || defined(BY_MACHINE)
        if (step == 32) {
            accumulate_all_32(acc[0] + j, x, x_next, x_step, w + j, w_step, count);
            continue;
        }
#endif
#if defined(__AVX__) || defined(BY_MACHINE)
        if (step == 16) {
            accumulate_all_16(acc[0] + j, x, x_next, x_step, w + j, w_step, count);
            continue;
        }
#endif
        accumulate_all_8(acc[0] + j, x, x_next, x_step, w + j, w_step, count);
    }
}
#else
enum { HAS_POSITIONS = 0, POSITIONS = 1 };

static inline void accumulate_all(ACC_T (*acc)[LANES], const X_T *x, int x_next, int x_step, const W_T *w, int w_step,
                                  int count, int lanes) {
    (void)acc, (void)x, (void)x_next, (void)x_step, (void)w, (void)w_step, (void)count, (void)lanes;
}
#endif

#endif
