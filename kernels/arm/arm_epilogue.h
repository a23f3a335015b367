/* Epilogues of kernels with the DSP extension, of one channel after the other. With REQUANT_UPPER a requantisation is
 * the upper word of acc * mul + add (SMLAL), shifted and limited (SSAT): its shift is 32 or more, its bias is part of
 * add, and no sum that can occur is a tie. Then the constants have one entry per channel. Included before the
 * header of a kernel. */
#ifndef ARM_EPILOGUE_H
#define ARM_EPILOGUE_H

#ifdef REQUANT_UPPER
#undef EPILOGUE_BIAS
#endif
#include "../portable/epilogue.h"
#include "arm_simd.h"

#ifdef REQUANT_UPPER
struct arm_channel {
    int32_t mul, shift;
    int64_t add;
};

static inline struct arm_channel arm_channel(const struct epilogue *e, int channel) {
    const struct arm_channel c = {((const MUL_T *)e->mul)[channel], e->shift - 32, ((const ADD_T *)e->add)[channel]};
    return c;
}

static inline Y_T arm_finish(int32_t acc, struct arm_channel c, const struct epilogue *e) {
    const int32_t value = arm_upper(acc, c.mul, c.add) >> c.shift;
#ifdef CLIP_WHOLE
    (void)e;
    return (Y_T)(ARM_IS_UNSIGNED(Y_T) ? arm_clip_u8(value) : arm_clip_s8(value));
#else
    return (Y_T)(value < e->low ? e->low : value > e->high ? e->high : value);
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

static inline Y_T arm_finish(int32_t acc, struct arm_channel c, const struct epilogue *e) {
    return finish(acc, e, c.channel);
}
#endif

#endif
