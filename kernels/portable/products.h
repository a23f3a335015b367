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

#define ACCUMULATE(name, ...)                                                                                 \
    OUT_OF_LINE void name(ACC_T *restrict acc, const X_T *x, int x_step, const W_T *w, int w_step, int count, \
                          int width) {                                                                        \
        const int lanes = __VA_ARGS__;                                                                        \
        ptrdiff_t at = 0;                                                                                     \
        (void)width;                                                                                          \
        for (int i = 0; i < count; i++, at += w_step) {                                                       \
            const ACC_T value = (ACC_T)x[i * x_step];                                                         \
            const W_T *row = w + at;                                                                          \
            for (int j = 0; j < lanes; j++) acc[j] += value * WEIGHT(row[j]);                                 \
        }                                                                                                     \
    }
#if LANES > 16
ACCUMULATE(accumulate_64, 64)
ACCUMULATE(accumulate_32, 32)
#endif
#if LANES > 8
ACCUMULATE(accumulate_16, 16)
#endif
ACCUMULATE(accumulate_8, 8)
ACCUMULATE(accumulate_any, width)
#undef ACCUMULATE

/* acc[j] += sum over i < count of x[i * x_step] * w[i * w_step + j], for j < lanes; an x_step of 0 repeats x. */
static inline void accumulate(ACC_T *acc, const X_T *x, int x_step, const W_T *w, int w_step, int count, int lanes) {
    switch (lanes) {
#if LANES > 16
        case 64:
            accumulate_64(acc, x, x_step, w, w_step, count, lanes);
            break;
        case 32:
            accumulate_32(acc, x, x_step, w, w_step, count, lanes);
            break;
#endif
#if LANES > 8
        case 16:
            accumulate_16(acc, x, x_step, w, w_step, count, lanes);
            break;
#endif
        case 8:
            accumulate_8(acc, x, x_step, w, w_step, count, lanes);
            break;
        default:
            accumulate_any(acc, x, x_step, w, w_step, count, lanes);
    }
}

#endif
