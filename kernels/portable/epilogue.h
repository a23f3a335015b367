/* The epilogue of a kernel: bias, requantisation, clamp. Included by kernel sources, once per instance.
 *
 * An instance is one compilation of a kernel source with these macros:
 *   KERNEL                 name of the function
 *   ACC_T                  type of the accumulator: int32_t or float
 *   <OPERAND>_T            element type of each operand (X_T, W_T, Y_T, BIAS_T, MUL_T, ADD_T ...)
 *   EPILOGUE_BIAS, EPILOGUE_REQUANTISE, EPILOGUE_CLAMP   defined where the stage is fused
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

#ifdef ACC_T
static inline Y_T finish(ACC_T value, const struct epilogue *e, int channel) {
    (void)e;
    (void)channel;
#ifdef EPILOGUE_BIAS
    value += ((const BIAS_T *)e->bias)[e->bias_step * channel];
#endif
#ifdef EPILOGUE_REQUANTISE
    const int64_t product = (int64_t)value * ((const MUL_T *)e->mul)[e->mul_step * channel];
    const int64_t wide = (product + ((const ADD_T *)e->add)[e->add_step * channel]) >> e->shift;
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
#endif
