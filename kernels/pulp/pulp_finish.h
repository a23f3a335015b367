/* Epilogues of the cluster's kernels: bias, requantisation in the form that its constants were prepared for, a table of
 * its results, clamp.
 *
 * Of these an instance has one, or none, which is the 64-bit form of docs/integer-form.md as it stands:
 *   REQUANT_NARROW   (acc*mul + add) >> shift in 32 bits: 2 instructions
 *   REQUANT_SPLIT    ((acc*low >> bits) + acc*high + add) >> shift in 32 bits: 4; mul is high above low, 32 bits each
 *   REQUANT_HIGH     (high half of (acc << left)*mul + add) >> shift: 3
 *   REQUANT_UPPER    the 64-bit form shifted by 32 or more: the upper word of acc*mul + add is enough
 * and of these any:
 *   REQUANT_CLIPPED  the accumulator is first limited to [-limit - 1, limit], beyond which the result does not change
 *   REQUANT_ONE      all channels have the same mul and add
 *   CLIP_WHOLE       low and high are the limits of Y_T: 1 instruction instead of 2
 */
#ifndef DEEPLOY_PULP_FINISH_H
#define DEEPLOY_PULP_FINISH_H

#include "../portable/kernel_instance.h"
#include "pulp_epilogue.h"
#include "xpulp.h"

/* Products with zero points have a summand per channel, as a bias (see pulp_zeros.h); nothing else has. */
#if !defined(ZEROS)
#define ZEROS 0
#endif
enum { ADDS_BIAS = HAS_BIAS || ZEROS };

#if REQUANT_SPLIT
typedef int64_t factor;
#else
typedef MUL_T factor;
#endif

/* What the outputs of one channel share. */
struct stages {
    int32_t bias;
    factor mul;
    ADD_T add;
};

/* Where the operands of a channel and those after it lie; or what all share. */
struct operands {
    const int32_t *bias;
    const factor *mul;
    const ADD_T *add;
    struct stages of_all;
};

static inline factor factor_of_all(const struct pulp_requantisation *r) {
    return (factor)(REQUANT_SPLIT ? (int64_t)r->upper * ((int64_t)1 << 32) + r->mul : r->mul);
}

static inline struct operands operands_at(const struct pulp_epilogue *e, const struct pulp_requantisation *r,
                                          int channel) {
    struct operands s = {0, 0, 0, {0, 0, 0}};
    if (ADDS_BIAS) s.bias = (const int32_t *)e->bias + channel;
    if (REQUANT_ONE) {
        s.of_all.mul = factor_of_all(r), s.of_all.add = (ADD_T)r->add;
    } else if (HAS_REQUANTISATION) {
        s.mul = (const factor *)e->mul + channel;
        s.add = (const ADD_T *)e->add + channel;
    }
    return s;
}

static inline struct operands operands_after(struct operands s, int channels) {
    if (ADDS_BIAS) s.bias += channels;
    if (HAS_REQUANTISATION && !REQUANT_ONE) s.mul += channels, s.add += channels;
    return s;
}

static inline struct stages stages_of(struct operands s, int channel) {
    struct stages result = {0, 0, 0};
    if (ADDS_BIAS) result.bias = s.bias[channel];
    if (REQUANT_ONE) {
        result.mul = s.of_all.mul, result.add = s.of_all.add;
    } else if (HAS_REQUANTISATION) {
        result.mul = s.mul[channel];
        result.add = s.add[channel];
    }
    return result;
}

/* Into the range of the output. */
static inline int32_t clip_output(int32_t value, const struct pulp_epilogue *e) {
    if (!CLIP_WHOLE) return xp_max(e->low, xp_min(e->high, value));
    return (Y_T)-1 < 0 ? xp_clip(value, sizeof(Y_T) == 1 ? 127 : 32767)
                       : xp_clipu(value, sizeof(Y_T) == 1 ? 255 : 65535);
}

static inline int32_t requantise(int32_t acc, const struct stages *s, const struct pulp_epilogue *e,
                                 const struct pulp_requantisation *r) {
    const int32_t mul = (int32_t)s->mul, add = (int32_t)s->add;
    if (REQUANT_CLIPPED) acc = xp_clip(acc, r->limit);
    if (REQUANT_NARROW) return clip_output(xp_mac(add, acc, mul) >> r->shift, e);
    if (REQUANT_SPLIT) {
        const int32_t lower = acc * mul >> r->bits, upper = (int32_t)((int64_t)s->mul >> 32);
        return clip_output(xp_add_shift(xp_mac(lower, acc, upper), add, r->shift), e);
    }
    if (REQUANT_HIGH)
        return clip_output(xp_add_shift(xp_mulh((int32_t)((uint32_t)acc << r->left), mul), add, r->shift), e);
    const int64_t sum = (int64_t)acc * s->mul + s->add;
    if (REQUANT_UPPER) {
        const int32_t upper = (int32_t)(sum >> 32);
        const uint32_t below = ((uint32_t)1 << (e->shift - 32)) - 1;
        int32_t result = upper >> (e->shift - 32);
        if (EVEN >= 0 && (uint32_t)sum == 0) result -= ((uint32_t)upper & below) == 0 && ((result - EVEN) & 1);
        return clip_output(result, e);
    }
    int64_t wide = sum >> e->shift;
    if (EVEN >= 0) wide -= wide * ((int64_t)1 << e->shift) == sum && ((wide - EVEN) & 1);
    return (int32_t)(wide < e->low ? e->low : wide > e->high ? e->high : wide);
}

/* The epilogue of one accumulator: a value that Y_T holds. */
static inline int32_t finish_with(int32_t acc, const struct stages *s, const struct pulp_epilogue *e,
                                  const struct pulp_requantisation *r) {
    if (ADDS_BIAS) acc += s->bias;
    if (HAS_REQUANTISATION) {
        acc = requantise(acc, s, e, r);
        return HAS_TABLE ? (int32_t)((const TABLE_T *)e->table)[acc - e->low] : acc;
    }
    return HAS_CLAMP ? xp_max(e->low, xp_min(e->high, acc)) : acc;
}

/* The requantisation of an accumulator in its register as assembly of STAGES instructions. Those of two accumulators
 * take turns: a product is there one instruction later. Where they have another register each, `sum`, it is theirs
 * with REQUANT_SPLIT alone; a single one leaves its result there. */
enum {
    IN_ASSEMBLY = XPULP_INSN && (REQUANT_NARROW || REQUANT_SPLIT || REQUANT_HIGH),
    ALONE_IN_ASSEMBLY = IN_ASSEMBLY && !REQUANT_SPLIT,
    STAGES = 2 + REQUANT_CLIPPED + REQUANT_HIGH + 2 * REQUANT_SPLIT + (CLIP_WHOLE ? 1 : 2) + HAS_TABLE,
    STAGES_OF_1 = STAGES + REQUANT_NARROW,
    FORM = REQUANT_CLIPPED | REQUANT_HIGH << 1 | REQUANT_SPLIT << 2 | CLIP_WHOLE << 3 | HAS_TABLE << 4 |
        ADDS_BIAS << 6 | REQUANT_ONE << 7
};
#define IS_CLIPPED "(%[form] & 1)"
#define IS_HIGH "(%[form] & 2)"
#define IS_SPLIT "(%[form] & 4)"
#define IS_WHOLE "(%[form] & 8)"
#define LOOKS_UP "(%[form] & 16)"
#define IS_BIASED "(%[form] & 64)"
#define IS_ONE "(%[form] & 128)"

#define XP_LIMIT(acc) IF(IS_CLIPPED, XP_CLIP(acc, acc, "%[limit]"))
#define XP_LEFT(acc) IF(IS_HIGH, "sll " acc ", " acc ", %[by]\n")
#define XP_SCALE(acc, mul) EITHER(IS_HIGH, "mulh " acc ", " acc ", " mul "\n", "mul " acc ", " acc ", " mul "\n")
#define XP_SUM(acc, add) XP_ADD_SHIFT(acc, add, "%[shift]")
#define XP_WITHIN(to, from) XP_MAX(to, from, "%[low]") XP_MIN(to, to, "%[high]")
#define XP_RANGE(to, from) \
    EITHER(IS_WHOLE, ".insn r 0x33, %[clip], 0x0a, " to ", " from ", %[high]\n", XP_WITHIN(to, from))
#define XP_FIND(acc) IF(LOOKS_UP, ".insn r 0x03, 7, 0x20, " acc ", %[table], " acc "\n")

#define XP_HIGH(acc, sum) XP_LEFT(acc) XP_SCALE(acc, "%[mul]") XP_SUM(acc, "%[add]") XP_RANGE(sum, acc)
#define XP_NARROW(acc, sum) \
    "mv " sum ", %[add]\n" XP_MAC(sum, acc, "%[mul]") "sra " sum ", " sum ", %[shift]\n" XP_RANGE(sum, sum)
#define XP_STAGES(acc, sum) XP_LIMIT(acc) EITHER(IS_HIGH, XP_HIGH(acc, sum), XP_NARROW(acc, sum)) XP_FIND(sum)

#define XP_LOWER(acc, sum, mul) "mul " sum ", " acc ", " mul "\n"
#define XP_RIGHT(sum) "sra " sum ", " sum ", %[by]\n"
#define XP_SPLIT_OF_2(a, x, b, y, mul, upper, add) \
    XP_LOWER(a, x, mul)                            \
    XP_LOWER(b, y, mul)                            \
    XP_RIGHT(x)                                    \
    XP_RIGHT(y) XP_MAC(x, a, upper) XP_MAC(y, b, upper) XP_SUM(x, add) XP_SUM(y, add) XP_RANGE(a, x) XP_RANGE(b, y)
#define XP_OTHERS_OF_2(a, b, mul, add) \
    XP_LEFT(a)                         \
    XP_LEFT(b)                         \
    XP_SCALE(a, mul) XP_SCALE(b, mul) XP_SUM(a, add) XP_SUM(b, add) XP_RANGE(a, a) XP_RANGE(b, b)
#define XP_STAGES_OF_2(a, x, b, y, mul, upper, add) \
    XP_LIMIT(a)                                     \
    XP_LIMIT(b)                                     \
    EITHER(IS_SPLIT, XP_SPLIT_OF_2(a, x, b, y, mul, upper, add), XP_OTHERS_OF_2(a, b, mul, add)) XP_FIND(a) XP_FIND(b)

/* Operands of these names; those that the form has not are constants, and take no register. `clip` is funct3 of the
 * clipping into the range of Y_T. */
#define XP_VARIANT [form] "i"(FORM), [clip] "i"((Y_T) - 1 < 0 ? 5 : 6)
#define XP_ENDS(e, r)                                                            \
    [by] "ri"(REQUANT_SPLIT  ? (r)->bits                                         \
              : REQUANT_HIGH ? (r)->left                                         \
                             : 0),                                               \
        [shift] "r"((r)->shift), [limit] "ri"(REQUANT_CLIPPED ? (r)->limit : 0), \
        [low] "ri"(CLIP_WHOLE ? 0 : (e)->low), [high] "r"((e)->high),            \
        [table] "ri"(HAS_TABLE ? (uintptr_t)(e)->table - (uintptr_t)(intptr_t)(e)->low : 0), XP_VARIANT
#define XP_OPERANDS_OF_1(stages, e, r) [mul] "r"((int32_t)(stages).mul), [add] "r"((stages).add), XP_ENDS(e, r)
#define XP_OPERANDS_OF_2(stages, e, r) \
    XP_OPERANDS_OF_1(stages, e, r), [upper] "ri"(REQUANT_SPLIT ? (int32_t)((int64_t)(stages).mul >> 32) : 0)

#endif
