/* Epilogues of the cluster's kernels: bias, requantisation in the form that its constants were prepared for, a table of
 * its results, clamp.
 *
 * Beside the macros of docs/kernels.md an instance may have
 *   REQUANT_NARROW   (acc*mul + add) >> shift in 32 bits
 *   REQUANT_SPLIT    ((acc*low >> bits) + acc*high + add) >> shift in 32 bits; mul is high above low, 32 bits each
 *   REQUANT_HIGH     (high half of (acc << left)*mul + add) >> shift
 *   REQUANT_UPPER    the 64-bit form of docs/integer-form.md shifted by 32 or more: the upper word of acc*mul + add is
 *                    enough
 *   REQUANT_CLIPPED  the accumulator is first limited to [-limit - 1, limit], beyond which the result does not change
 *   REQUANT_ONE      all channels have the same mul and add
 *   CLIP_WHOLE       low and high are the limits of Y_T
 * and without the first four the 64-bit form as it stands.
 */
#ifndef DEEPLOY_PULP_EPILOGUE_H
#define DEEPLOY_PULP_EPILOGUE_H

#include <stdint.h>

/* Operands of the stages: one value per channel, each. The steps say so, too. */
struct pulp_epilogue {
    const void *bias;
    const void *mul;
    const void *add;
    const void *table; /* of outputs, for requantised values from `low` on */
    int bias_step, mul_step, add_step;
    int shift;
    int32_t low, high;
};

/* What the compiler made of a requantisation. */
struct pulp_requantisation {
    int32_t limit;
    int left, bits, shift;
    int32_t mul, upper, add; /* of all channels, with REQUANT_ONE; mul and upper are the parts of a split factor */
};

#endif

#if defined(ACC_T) && !defined(DEEPLOY_PULP_FINISH)
#define DEEPLOY_PULP_FINISH

#include "xpulp.h"

#ifdef REQUANT_SPLIT
typedef int64_t factor;
#define FACTOR_OF_ALL(r) ((int64_t)(r)->upper * ((int64_t)1 << 32) + (r)->mul)
#elif defined(MUL_T)
typedef MUL_T factor;
#else
typedef int32_t factor;
#endif
#ifndef REQUANT_SPLIT
#define FACTOR_OF_ALL(r) (r)->mul
#endif
#ifndef ADD_T
#define ADD_T int32_t
#endif

/* What the outputs of one channel share. */
struct stages {
    int32_t bias;
    factor mul;
    ADD_T add;
};

#ifdef REQUANT_ONE
typedef factor factors;
typedef ADD_T summands;
#else
typedef const factor *factors;
typedef const ADD_T *summands;
#endif

/* Where the operands of a channel and those after it lie; or what all share. */
struct operands {
    const int32_t *bias;
    factors mul;
    summands add;
};

static inline struct operands operands_at(const struct pulp_epilogue *e, const struct pulp_requantisation *r,
                                          int channel) {
    struct operands s = {0, 0, 0};
    (void)e, (void)r, (void)channel;
#ifdef EPILOGUE_BIAS
    s.bias = (const int32_t *)e->bias + channel;
#endif
#if defined(REQUANT_ONE)
    s.mul = FACTOR_OF_ALL(r), s.add = r->add;
#elif defined(EPILOGUE_REQUANTISE)
    s.mul = (const factor *)e->mul + channel;
    s.add = (const ADD_T *)e->add + channel;
#endif
    return s;
}

static inline struct operands operands_after(struct operands s, int channels) {
    (void)channels;
#ifdef EPILOGUE_BIAS
    s.bias += channels;
#endif
#if defined(EPILOGUE_REQUANTISE) && !defined(REQUANT_ONE)
    s.mul += channels, s.add += channels;
#endif
    return s;
}

static inline struct stages stages_of(struct operands s, int channel) {
    struct stages result = {0, 0, 0};
    (void)s, (void)channel;
#ifdef EPILOGUE_BIAS
    result.bias = s.bias[channel];
#endif
#if defined(REQUANT_ONE)
    result.mul = s.mul, result.add = s.add;
#elif defined(EPILOGUE_REQUANTISE)
    result.mul = s.mul[channel];
    result.add = s.add[channel];
#endif
    return result;
}

#ifdef EPILOGUE_REQUANTISE
/* Into the range of the output. */
static inline int32_t clip_output(int32_t value, const struct pulp_epilogue *e) {
#ifdef CLIP_WHOLE
    (void)e;
    return (Y_T)-1 < 0 ? xp_clip(value, sizeof(Y_T) == 1 ? 127 : 32767)
                       : xp_clipu(value, sizeof(Y_T) == 1 ? 255 : 65535);
#else
    return xp_max(e->low, xp_min(e->high, value));
#endif
}

static inline int32_t requantise(int32_t acc, const struct stages *s, const struct pulp_epilogue *e,
                                 const struct pulp_requantisation *r) {
#ifdef REQUANT_CLIPPED
    acc = xp_clip(acc, r->limit);
#endif
#if defined(REQUANT_NARROW)
    return clip_output(xp_mac(s->add, acc, s->mul) >> r->shift, e);
#elif defined(REQUANT_SPLIT)
    const int32_t lower = acc * (int32_t)s->mul >> r->bits;
    return clip_output(xp_add_shift(xp_mac(lower, acc, (int32_t)(s->mul >> 32)), s->add, r->shift), e);
#elif defined(REQUANT_HIGH)
    return clip_output(xp_add_shift(xp_mulh((int32_t)((uint32_t)acc << r->left), s->mul), s->add, r->shift), e);
#else
    (void)r;
    const int64_t sum = (int64_t)acc * s->mul + s->add;
#ifdef REQUANT_UPPER
    const int32_t upper = (int32_t)(sum >> 32);
    int32_t result = upper >> (e->shift - 32);
#ifdef EPILOGUE_EVEN
    const uint32_t below = ((uint32_t)1 << (e->shift - 32)) - 1;
    if ((uint32_t)sum == 0) result -= ((uint32_t)upper & below) == 0 && ((result - EPILOGUE_EVEN) & 1);
#endif
    return clip_output(result, e);
#else
    int64_t wide = sum >> e->shift;
#ifdef EPILOGUE_EVEN
    wide -= wide * ((int64_t)1 << e->shift) == sum && ((wide - EPILOGUE_EVEN) & 1);
#endif
    return (int32_t)(wide < e->low ? e->low : wide > e->high ? e->high : wide);
#endif
#endif
}
#endif

/* The epilogue of one accumulator: a value that Y_T holds. */
static inline int32_t finish_with(int32_t acc, const struct stages *s, const struct pulp_epilogue *e,
                                  const struct pulp_requantisation *r) {
    (void)s, (void)e, (void)r;
#ifdef EPILOGUE_BIAS
    acc += s->bias;
#endif
#ifdef EPILOGUE_REQUANTISE
    acc = requantise(acc, s, e, r);
#ifdef EPILOGUE_LOOKUP
    acc = ((const TABLE_T *)e->table)[acc - e->low];
#endif
#elif defined(EPILOGUE_CLAMP)
    acc = xp_max(e->low, xp_min(e->high, acc));
#endif
    return acc;
}

/* The requantisation of an accumulator in its register as assembly of STAGES instructions, on operands of these names;
 * `clip` is funct3 of the clipping into the range of Y_T. Those of two accumulators, which have a register more each,
 * take turns: a product is there one instruction later. */
#if defined(XPULP_INSN) && (defined(REQUANT_NARROW) || defined(REQUANT_SPLIT) || defined(REQUANT_HIGH))
#ifdef REQUANT_CLIPPED
#define XP_LIMIT(acc) ".insn r 0x33, 5, 0x0a, " acc ", " acc ", %[limit]\n"
enum { LIMITS = 1 };
#else
#define XP_LIMIT(acc)
enum { LIMITS = 0 };
#endif
#if defined(REQUANT_NARROW)
#define XP_LEFT(acc)
#define XP_SCALE(acc, mul) "mul " acc ", " acc ", " mul "\n"
enum { SCALES = 1 };
#elif defined(REQUANT_HIGH)
#define XP_LEFT(acc) "sll " acc ", " acc ", %[left]\n"
#define XP_SCALE(acc, mul) "mulh " acc ", " acc ", " mul "\n"
enum { SCALES = 2 };
#else
enum { SCALES = 3 };
#endif
#define XP_SUM(acc, add) ".insn r 0x5b, 2, 0x20, " acc ", " add ", %[shift]\n"
#ifdef CLIP_WHOLE
#define XP_RANGE(acc, sum) ".insn r 0x33, %[clip], 0x0a, " acc ", " sum ", %[high]\n"
enum { RANGES = 1 };
#else
#define XP_RANGE(acc, sum) \
    ".insn r 0x33, 6, 2, " acc ", " sum ", %[low]\n.insn r 0x33, 4, 2, " acc ", " acc ", %[high]\n"
enum { RANGES = 2 };
#endif
#ifdef EPILOGUE_LOOKUP
#define XP_FIND(acc) ".insn r 0x03, 7, 0x20, " acc ", %[table], " acc "\n"
#define XP_TABLE(e) , [table] "r"((uintptr_t)(e)->table - (uintptr_t)(intptr_t)(e)->low)
enum { FINDS = 1 };
#else
#define XP_FIND(acc)
#define XP_TABLE(e)
enum { FINDS = 0 };
#endif
enum { STAGES = 1 + LIMITS + SCALES + RANGES + FINDS };
#ifdef REQUANT_SPLIT
#define XP_LOWER(acc, sum, mul) "mul " sum ", " acc ", " mul "\n"
#define XP_RIGHT(sum) "sra " sum ", " sum ", %[bits]\n"
#define XP_UPPER(acc, sum, upper) ".insn r 0x33, 0, 0x21, " sum ", " acc ", " upper "\n"
#define XP_LOWERS(a, a_sum, b, b_sum, mul) \
    XP_LOWER(a, a_sum, mul) XP_LOWER(b, b_sum, mul) XP_RIGHT(a_sum) XP_RIGHT(b_sum)
#define XP_UPPERS(a, a_sum, b, b_sum, upper) XP_UPPER(a, a_sum, upper) XP_UPPER(b, b_sum, upper)
#define XP_SUMS(a, a_sum, b, b_sum, add) \
    XP_SUM(a_sum, add) XP_SUM(b_sum, add) XP_RANGE(a, a_sum) XP_RANGE(b, b_sum) XP_FIND(a) XP_FIND(b)
#define XP_OF_2(a, a_sum, b, b_sum, mul, upper) XP_LOWERS(a, a_sum, b, b_sum, mul) XP_UPPERS(a, a_sum, b, b_sum, upper)
#define XP_STAGES_OF_2(a, x, b, y, mul, upper, add) \
    XP_LIMIT(a) XP_LIMIT(b) XP_OF_2(a, x, b, y, mul, upper) XP_SUMS(a, x, b, y, add)
#else
#ifdef REQUANT_NARROW
#define XP_STAGES(acc, sum)                                                                  \
    XP_LIMIT(acc)                                                                            \
    "mv " sum ", %[add]\n.insn r 0x33, 0, 0x21, " sum ", " acc ", %[mul]\nsra " sum ", " sum \
    ", %[shift]\n" XP_RANGE(sum, sum) XP_FIND(sum)
enum { STAGES_OF_1 = STAGES + 1 };
#else
#define XP_STAGES(acc, sum) \
    XP_LIMIT(acc) XP_LEFT(acc) XP_SCALE(acc, "%[mul]") XP_SUM(acc, "%[add]") XP_RANGE(sum, acc) XP_FIND(sum)
enum { STAGES_OF_1 = STAGES };
#endif
#define XP_SCALES(a, b, mul) XP_LIMIT(a) XP_LIMIT(b) XP_LEFT(a) XP_LEFT(b) XP_SCALE(a, mul) XP_SCALE(b, mul)
#define XP_SUMS(a, b, add) XP_SUM(a, add) XP_SUM(b, add) XP_RANGE(a, a) XP_RANGE(b, b) XP_FIND(a) XP_FIND(b)
#define XP_STAGES_OF_2(a, x, b, y, mul, upper, add) XP_SCALES(a, b, mul) XP_SUMS(a, b, add)
#endif
#ifdef REQUANT_SPLIT
#define XP_FORM(r) [bits] "r"((r)->bits)
#define XP_FACTORS(stages) [mul] "r"((int32_t)(stages).mul), [upper] "r"((int32_t)((stages).mul >> 32))
#else
#define XP_FORM(r) [left] "r"((r)->left)
#define XP_FACTORS(stages) [mul] "r"((stages).mul)
#endif
#define XP_ENDS(e, r)                                                                             \
    [shift] "r"((r)->shift), [limit] "r"((r)->limit), [low] "r"((e)->low), [high] "r"((e)->high), \
        [clip] "i"((Y_T) - 1 < 0 ? 5 : 6) XP_TABLE(e)
#define XP_STAGE_OPERANDS(stages, e, r) XP_FACTORS(stages), [add] "r"((stages).add), XP_FORM(r), XP_ENDS(e, r)
#endif
#endif
