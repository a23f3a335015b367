/* Epilogues of the cluster's kernels: bias, requantisation in the form that its constants were prepared for, clamp.
 *
 * Beside the macros of docs/kernels.md an instance may have
 *   REQUANT_NARROW   (acc*mul + add) >> shift in 32 bits
 *   REQUANT_HIGH     (high half of (acc << left)*mul + add) >> shift
 *   REQUANT_CLIPPED  the accumulator is first limited to [-limit - 1, limit], beyond which the result does not change
 *   CLIP_WHOLE       low and high are the limits of Y_T
 * and without the first two the 64-bit form of docs/integer-form.md.
 */
#ifndef DEEPLOY_PULP_EPILOGUE_H
#define DEEPLOY_PULP_EPILOGUE_H

#include <stdint.h>

/* Operands of the stages; a step is 1 where there is one value per channel and 0 where one value serves all. */
struct pulp_epilogue {
    const void *bias;
    const void *mul;
    const void *add;
    int bias_step, mul_step, add_step;
    int shift;
    int32_t low, high;
};

/* What the compiler made of a requantisation. */
struct pulp_requantisation {
    int32_t limit;
    int left, shift;
};

#endif

#if defined(ACC_T) && !defined(DEEPLOY_PULP_FINISH)
#define DEEPLOY_PULP_FINISH

#include "xpulp.h"

#ifndef EPILOGUE_REQUANTISE
#define MUL_T int32_t
#define ADD_T int32_t
#endif

/* What the outputs of one channel share. */
struct stages {
    int32_t bias;
    MUL_T mul;
    ADD_T add;
};

static inline struct stages stages_of(const struct pulp_epilogue *e, int channel) {
    struct stages s = {0, 0, 0};
    (void)e, (void)channel;
#ifdef EPILOGUE_BIAS
    s.bias = ((const BIAS_T *)e->bias)[e->bias_step * channel];
#endif
#ifdef EPILOGUE_REQUANTISE
    s.mul = ((const MUL_T *)e->mul)[e->mul_step * channel];
    s.add = ((const ADD_T *)e->add)[e->add_step * channel];
#endif
    return s;
}

#ifdef EPILOGUE_REQUANTISE
/* Into the range of the output. */
static inline int32_t clip_output(int32_t value, const struct pulp_epilogue *e) {
#ifdef CLIP_WHOLE
    (void)e;
    return (Y_T)-1 < 0 ? xp_clip(value, sizeof(Y_T) == 1 ? 127 : 32767) : xp_clipu(value, sizeof(Y_T) == 1 ? 255 : 65535);
#else
    return xp_max(e->low, xp_min(e->high, value));
#endif
}

static inline int32_t requantise(int32_t acc, const struct stages *s, const struct pulp_epilogue *e, const struct pulp_requantisation *r) {
#ifdef REQUANT_CLIPPED
    acc = xp_clip(acc, r->limit);
#endif
#if defined(REQUANT_NARROW)
    return clip_output(xp_add_shift(acc * s->mul, s->add, r->shift), e);
#elif defined(REQUANT_HIGH)
    return clip_output(xp_add_shift(xp_mulh((int32_t)((uint32_t)acc << r->left), s->mul), s->add, r->shift), e);
#else
    (void)r;
    const int64_t sum = (int64_t)acc * s->mul + s->add;
    int64_t wide = sum >> e->shift;
#ifdef EPILOGUE_EVEN
    wide -= wide * ((int64_t)1 << e->shift) == sum && ((wide - EPILOGUE_EVEN) & 1);
#endif
    return (int32_t)(wide < e->low ? e->low : wide > e->high ? e->high : wide);
#endif
}
#endif

/* The epilogue of one accumulator. */
static inline Y_T finish(int32_t acc, const struct stages *s, const struct pulp_epilogue *e, const struct pulp_requantisation *r) {
    (void)s, (void)e, (void)r;
#ifdef EPILOGUE_BIAS
    acc += s->bias;
#endif
#ifdef EPILOGUE_REQUANTISE
    acc = requantise(acc, s, e, r);
#elif defined(EPILOGUE_CLAMP)
    acc = xp_max(e->low, xp_min(e->high, acc));
#endif
    return (Y_T)acc;
}
#endif
