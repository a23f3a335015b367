/* Epilogues of kernels with the DSP extension, of one channel after the other. With REQUANT_WORDS a requantisation is
 * the upper word of (acc + bias) * mul and a summand (SMMLA), shifted and limited (SSAT): its shift is 32 or more, and
 * `add` holds the bias below and the summand above, one entry per channel. Sums begin with `arm_first`. Included before
 * the header of a kernel. */
#ifndef ARM_EPILOGUE_H
#define ARM_EPILOGUE_H

#ifdef REQUANT_WORDS
#undef EPILOGUE_BIAS
#endif
#include "../portable/epilogue.h"
#include "arm_simd.h"

#ifdef REQUANT_WORDS
struct arm_channel {
    int32_t bias, mul, summand;
};

static inline struct arm_channel arm_channel(const struct epilogue *e, int channel) {
    const int64_t both = ((const ADD_T *)e->add)[channel];
    return (struct arm_channel){(int32_t)(both & 0xFFFFFFFF), ((const MUL_T *)e->mul)[channel], (int32_t)(both >> 32)};
}

/* What the sum of an output begins with. */
static inline int32_t arm_first(struct arm_channel c) {
    return c.bias;
}

static inline Y_T arm_finish(int32_t acc, struct arm_channel c, const struct epilogue *e) {
    const int32_t value = arm_upper(acc, c.mul, c.summand) >> (e->shift - 32);
#ifdef CLIP_WHOLE
    (void)e;
    return (Y_T)(ARM_IS_UNSIGNED(Y_T) ? arm_clip_u8(value) : arm_clip_s8(value));
#else
    const int32_t least = value < e->low ? e->low : value;
    return (Y_T)(least > e->high ? e->high : least);
#endif
}
#else
struct arm_channel {
    int channel;
};

static inline struct arm_channel arm_channel(const struct epilogue *e, int channel) {
    (void)e;
    return (struct arm_channel){channel};
}

static inline int32_t arm_first(struct arm_channel c) {
    (void)c;
    return 0;
}

static inline Y_T arm_finish(int32_t acc, struct arm_channel c, const struct epilogue *e) {
    return finish(acc, e, c.channel);
}
#endif

#endif
