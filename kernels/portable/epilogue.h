/* The epilogue of a kernel: bias, requantisation, clamp. Included by kernel sources, once per instance.
 *
 * An instance is one compilation of a kernel source with these macros:
 *   KERNEL                 name of the function
 *   ACC_T                  type of the accumulator: int32_t or float
 *   <OPERAND>_T            element type of each operand (X_T, W_T, Y_T, BIAS_T, MUL_T, ADD_T ...)
 *   EPILOGUE_BIAS, EPILOGUE_REQUANTISE, EPILOGUE_LOOKUP, EPILOGUE_CLAMP   defined where the stage is fused
 *   EPILOGUE_EVEN          parity of the zero point, where ties of a requantisation go to the even multiple of the
 * scale
 */
#ifndef DEEPLOY_EPILOGUE_H
#define DEEPLOY_EPILOGUE_H

#include <stdint.h>

#include "vectorised.h"

/* Operands of the stages; a step is 1 where there is one value per channel and 0 where one value serves all. */
struct epilogue {
    const void *bias;
    const void *mul;
    const void *add;
    const void *table; /* of outputs, for requantised values from `low` on */
    int bias_step;
    int mul_step;
    int add_step;
    int shift;
    int32_t low;
    int32_t high;
    float low_f;
    float high_f;
};

#endif

#if defined(ACC_T) && !defined(DEEPLOY_FINISH)
#define DEEPLOY_FINISH

#include "kernel_instance.h"

/* Limits one after the other, in 32 bits: where one decides about the other, or 64 bits are compared, compilers branch.
 */
static inline int32_t requantise(ACC_T value, MUL_T mul, ADD_T add, int shift, int32_t low, int32_t high) {
    const int64_t sum = (int64_t)value * mul + add;
    int64_t wide = sum >> shift;
    if (EVEN >= 0) wide -= (wide * ((int64_t)1 << shift) == sum) & (wide - EVEN) & 1;
    const int32_t lower = (int32_t)wide;
    int32_t near = (int32_t)(wide >> 32) == lower >> 31 ? lower : (int32_t)(wide >> 63) ^ INT32_MAX;
    near = near < low ? low : near;
    return near > high ? high : near;
}

/* A step that the compiler knows is a loop that it vectorises. */
static inline void requantise_row(ACC_T *restrict acc, const struct epilogue *e, int channel, int count, int mul_step,
                                  int add_step) {
    const MUL_T *mul = (const MUL_T *)e->mul + mul_step * channel;
    const ADD_T *add = (const ADD_T *)e->add + add_step * channel;
    const int shift = e->shift;
    const int32_t low = e->low, high = e->high;
    /*@ loop unroll 64; */
    ROLLED for (int j = 0; j < count; j++) acc[j] =
        (ACC_T)requantise(acc[j], mul[mul_step * j], add[add_step * j], shift, low, high);
}

static inline void clamp_row(ACC_T *restrict acc, const struct epilogue *e, int count) {
    const ACC_T low = IS_FLOAT ? (ACC_T)e->low_f : (ACC_T)e->low, high = IS_FLOAT ? (ACC_T)e->high_f : (ACC_T)e->high;
    /*@ loop unroll 64; */
    ROLLED for (int j = 0; j < count; j++) {
        const ACC_T least = acc[j] < low ? low : acc[j];
        acc[j] = least > high ? high : least;
    }
}

/* The epilogue of `count` accumulators of neighbouring channels, the first of which is `channel`. */
VECTORISED void finish_row(ACC_T *restrict acc, Y_T *restrict y, const struct epilogue *e, int channel, int count) {
    const BIAS_T *bias = HAS_BIAS ? (const BIAS_T *)e->bias + e->bias_step * channel : 0;
    /*@ loop unroll 64; */
    ROLLED for (int j = 0; j < count && HAS_BIAS; j++) acc[j] += (ACC_T)bias[e->bias_step * j];
    if (HAS_REQUANTISATION) {
        if (e->mul_step && e->add_step) {
            requantise_row(acc, e, channel, count, 1, 1);
        } else if (e->add_step) {
            requantise_row(acc, e, channel, count, 0, 1);
        } else {
            requantise_row(acc, e, channel, count, e->mul_step, 0);
        }
    }
    if (HAS_CLAMP && !HAS_REQUANTISATION) clamp_row(acc, e, count);
    /*@ loop unroll 64; */
    ROLLED for (int j = 0; j < count && HAS_TABLE; j++) acc[j] =
        (ACC_T)((const TABLE_T *)e->table)[(int32_t)acc[j] - e->low];
    /*@ loop unroll 64; */
    ROLLED for (int j = 0; j < count; j++) y[j] = (Y_T)acc[j];
}

/* The epilogue of one accumulator. */
static inline Y_T finish(ACC_T value, const struct epilogue *e, int channel) {
    Y_T y;
    finish_row(&value, &y, e, channel, 1);
    return y;
}
#endif
