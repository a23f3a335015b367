/* The epilogue of a kernel: bias, requantisation, clamp. Included by kernel sources, once per instance.
 *
 * An instance is one compilation of a kernel source with these macros:
 *   KERNEL                 name of the function
 *   ACC_T                  type of the accumulator: int32_t or float
 *   <OPERAND>_T            element type of each operand (X_T, W_T, Y_T, BIAS_T, MUL_T, ADD_T ...)
 *   EPILOGUE_BIAS, EPILOGUE_REQUANTISE, EPILOGUE_CLAMP   defined where the stage is fused
 *   EPILOGUE_EVEN          parity of the zero point, where ties of a requantisation go to the even multiple of the scale
 */
#ifndef DEEPLOY_EPILOGUE_H
#define DEEPLOY_EPILOGUE_H

#include <stdint.h>

/* Operands of the stages; a step is 1 where there is one value per channel and 0 where one value serves all. */
struct epilogue {
    const void *bias;
    const void *mul;
    const void *add;
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

/* One accumulator; the indices select the stages' operands. */
static inline Y_T finish_at(ACC_T value, const struct epilogue *e, int bias, int mul, int add) {
    (void)e, (void)bias, (void)mul, (void)add;
#ifdef EPILOGUE_BIAS
    value += ((const BIAS_T *)e->bias)[bias];
#endif
#ifdef EPILOGUE_REQUANTISE
    const int64_t product = (int64_t)value * ((const MUL_T *)e->mul)[mul];
    const int64_t sum = product + ((const ADD_T *)e->add)[add];
    int64_t wide = sum >> e->shift;
#ifdef EPILOGUE_EVEN
    wide -= wide * ((int64_t)1 << e->shift) == sum && ((wide - EPILOGUE_EVEN) & 1);
#endif
    return (Y_T)(wide < e->low ? e->low : wide > e->high ? e->high : wide);
#else
#ifdef EPILOGUE_CLAMP
#ifdef ACC_IS_FLOAT
    value = value < e->low_f ? e->low_f : value > e->high_f ? e->high_f : value;
#else
    value = value < e->low ? e->low : value > e->high ? e->high : value;
#endif
#endif
    return (Y_T)value;
#endif
}

static inline Y_T finish(ACC_T value, const struct epilogue *e, int channel) {
    return finish_at(value, e, e->bias_step * channel, e->mul_step * channel, e->add_step * channel);
}

/* `count` accumulators of neighbouring channels, the first of which is `channel`. The epilogue is copied so that stores to
 * y cannot change it, and the usual combinations of steps are spelled out: compilers vectorise them. */
static inline void finish_row(const ACC_T *acc, Y_T *restrict y, const struct epilogue *epilogue, int channel, int count) {
    const struct epilogue e = *epilogue;
    const int c = channel;
    if (e.bias_step && e.mul_step && e.add_step) {
        for (int j = 0; j < count; j++) y[j] = finish_at(acc[j], &e, c + j, c + j, c + j);
    } else if (e.mul_step && e.add_step) {
        for (int j = 0; j < count; j++) y[j] = finish_at(acc[j], &e, 0, c + j, c + j);
    } else if (e.add_step) {
        for (int j = 0; j < count; j++) y[j] = finish_at(acc[j], &e, e.bias_step * (c + j), 0, c + j);
    } else {
        for (int j = 0; j < count; j++) y[j] = finish(acc[j], &e, c + j);
    }
}
#endif
