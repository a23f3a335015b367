/* Sums of terms of 32 bits, for sources that define `arguments`, the structure of a call, and IS_DENSE(k), whether rows
 * are.
 *
 * An instance may define REQUANT_NARROW or REQUANT_HIGH, REQUANT_CLIPPED, REQUANT_ONE and CLIP_WHOLE, see
 * pulp_epilogue.h. With an operand b, CLIP_WHOLE is of the sum as int8; RESULT_SIGNED or RESULT_UNSIGNED say that the
 * limits of the result are those of int8 or uint8, and SUM_SHORT that the factor of the sum has 16 bits. */
#ifndef DEEPLOY_PULP_TERMS_H
#define DEEPLOY_PULP_TERMS_H

#include "xpulp.h"

#if defined(REQUANT_NARROW) || defined(REQUANT_HIGH)
#define REQUANTISED
#endif
#ifdef REQUANT_ONE
#define FACTOR_OF(channel) k->requantisation.mul
#define SUMMAND_OF(channel) k->requantisation.add
#else
#define FACTOR_OF(channel) k->mul[channel]
#define SUMMAND_OF(channel) k->add[channel]
#endif

enum { AXES = 3, LAST = AXES - 1 };

/* What becomes of a sum, which is of a channel: a value that Y_T holds. `place` is that of b. */
static inline int32_t finished(const arguments *k, int32_t acc, int channel, int place) {
    (void)k, (void)channel, (void)place;
#ifdef REQUANT_CLIPPED
    acc = xp_clip(acc, k->requantisation.limit);
#endif
#ifdef REQUANT_NARROW
    acc = xp_mac(SUMMAND_OF(channel), acc, FACTOR_OF(channel)) >> k->requantisation.shift;
#elif defined(REQUANT_HIGH)
    acc = xp_mulh((int32_t)((uint32_t)acc << k->requantisation.left), FACTOR_OF(channel));
    acc = xp_add_shift(acc, SUMMAND_OF(channel), k->requantisation.shift);
#endif
#ifdef REQUANTISED
    acc = xp_max(k->low, xp_min(k->high, acc));
#endif
#ifdef B_T
    const int32_t b = ((const B_T *)k->b)[place];
    acc = xp_mac(xp_mac(k->offset, acc, k->a_mul), b, k->b_mul) >> k->result_shift;
    acc = xp_max(k->result_low, xp_min(k->result_high, acc));
#endif
    return acc;
}

/* Where a row begins, in elements of the operands. */
struct place {
    int x, b, y;
};

OUT_OF_LINE void strided_row(const arguments *k, struct place at) {
    for (int i = 0; i < k->extent[LAST]; i++) {
        const int32_t *x = (const int32_t *)k->x + at.x + i * k->x_step[LAST];
        int32_t acc = *x;
        for (int terms = k->terms; --terms > 0;) acc += *(x += k->x_term);
#ifdef B_T
        acc = finished(k, acc, i, at.b + i * k->b_step[LAST]);
#else
        acc = finished(k, acc, i, 0);
#endif
        ((Y_T *)k->y)[at.y + i * k->y_step[LAST]] = (Y_T)acc;
    }
}

#ifdef XPULP_INSN
/* Assembly on t3 and t4, the sums of two neighbours, in turns: a product is there one instruction later. */
#define BOTH(of, ...) of("t3", __VA_ARGS__) of("t4", __VA_ARGS__)
#define MUL(s, by, ...) "mul " s ", " s ", " by "\n"
#define MAC(s, x, by) ".insn r 0x33, 0, 0x21, " s ", " x ", " by "\n"
#define ADD_SHIFT(s, add, by, ...) ".insn r 0x5b, 2, 0x20, " s ", " add ", " by "\n"
#define LEFT(s, by, ...) "sll " s ", " s ", " by "\n"
#define MULH(s, by, ...) "mulh " s ", " s ", " by "\n"
#define LIMIT(s, to, ...) ".insn r 0x33, 5, 0x0a, " s ", " s ", " to "\n"
#define CLIP(s, funct, to, ...) ".insn r 0x33, " funct ", 0x0a, " s ", " s ", " to "\n"
#define WITHIN(s, low, high, ...) \
    ".insn r 0x33, 6, 2, " s ", " s ", " low "\n.insn r 0x33, 4, 2, " s ", " s ", " high "\n"
#define LOAD(to, from) ".insn i 0x0b, 2, " to ", " from ", 4\n"
#define STORE(s, kind, size, ...) ".insn s 0x2b, " kind ", " s ", " size "(%[y])\n"

#ifdef REQUANT_CLIPPED
#define LIMITED BOTH(LIMIT, "%[limit]", )
#define LIMIT_OPERANDS [limit] "r"(k->requantisation.limit),
enum { LIMIT_COUNT = 2 };
#else
#define LIMITED
#define LIMIT_OPERANDS
enum { LIMIT_COUNT = 0 };
#endif

/* By the factor of a channel, or of all; then the summand. */
#ifdef REQUANT_ONE
#define BY(product) BOTH(product, "%[mul]", )
#define SHIFTED BOTH(ADD_SHIFT, "%[add]", "%[shift]", )
#define FACTOR_OPERANDS [mul] "r"(k->requantisation.mul), [add] "r"(k->requantisation.add),
#define CHANNEL_OPERANDS
enum { FACTOR_COUNT = 0 };
#else
#define BY(product) LOAD("t5", "%[mul]") LOAD("t6", "%[mul]") product("t3", "t5", ) product("t4", "t6", )
#define SHIFTED \
    LOAD("t5", "%[add]") LOAD("t6", "%[add]") ADD_SHIFT("t3", "t5", "%[shift]", ) ADD_SHIFT("t4", "t6", "%[shift]", )
#define FACTOR_OPERANDS
#define CHANNEL_OPERANDS [mul] "+r"(mul), [add] "+r"(add),
enum { FACTOR_COUNT = 4 };
#endif

#if defined(REQUANT_NARROW)
#define SCALED LIMITED BY(MUL) SHIFTED
#define SCALE_OPERANDS FACTOR_OPERANDS LIMIT_OPERANDS[shift] "r"(k->requantisation.shift),
enum { SCALE_COUNT = LIMIT_COUNT + FACTOR_COUNT + 4 };
#elif defined(REQUANT_HIGH)
#define SCALED LIMITED BOTH(LEFT, "%[left]", ) BY(MULH) SHIFTED
#define SCALE_OPERANDS \
    FACTOR_OPERANDS LIMIT_OPERANDS[shift] "r"(k->requantisation.shift), [left] "r"(k->requantisation.left),
enum { SCALE_COUNT = LIMIT_COUNT + FACTOR_COUNT + 6 };
#endif

#ifdef CLIP_WHOLE
#ifdef B_T
#define RANGED BOTH(CLIP, "5", "%[high]", )
#define RANGE_OPERANDS [high] "r"(k->high),
#else
#define RANGED BOTH(CLIP, "%[clip]", "%[high]", )
#define RANGE_OPERANDS [high] "r"(k->high), [clip] "i"((Y_T) - 1 < 0 ? 5 : 6),
#endif
enum { RANGE_COUNT = 2 };
#else
#define RANGED BOTH(WITHIN, "%[low]", "%[high]", )
#define RANGE_OPERANDS [low] "r"(k->low), [high] "r"(k->high),
enum { RANGE_COUNT = 4 };
#endif

#if defined(RESULT_SIGNED) || defined(RESULT_UNSIGNED)
#ifdef RESULT_SIGNED
#define RESULT BOTH(CLIP, "5", "%[result_high]", )
#else
#define RESULT BOTH(CLIP, "6", "%[result_high]", )
#endif
#define RESULT_OPERANDS [result_high] "r"(k->result_high),
enum { RESULT_COUNT = 2 };
#else
#define RESULT BOTH(WITHIN, "%[result_low]", "%[result_high]", )
#define RESULT_OPERANDS [result_low] "r"(k->result_low), [result_high] "r"(k->result_high),
enum { RESULT_COUNT = 4 };
#endif

#ifdef SUM_SHORT
#define BY_A(s, ...) ".insn r 0x5b, 0, 0x40, " s ", " s ", %[a_mul]\n"
#else
#define BY_A(s, ...) MUL(s, "%[a_mul]", )
#endif

#if defined(B_T)
#define LOAD_B(to) ".insn i 0x0b, %[b_load], " to ", %[b], 1\n"
#define JOINED   \
    BOTH(BY_A, ) \
    MAC("t3", "t5", "%[b_mul]") MAC("t4", "t6", "%[b_mul]") BOTH(ADD_SHIFT, "%[offset]", "%[result_shift]", )
#define FINISH SCALED LOAD_B("t5") LOAD_B("t6") RANGED JOINED RESULT BOTH(STORE, "0", "1", )
enum { FINISHES = SCALE_COUNT + RANGE_COUNT + RESULT_COUNT + 10 };
#define ROW_OPERANDS CHANNEL_OPERANDS[b] "+r"(b),
#define FINISH_OPERANDS                                                                        \
    SCALE_OPERANDS RANGE_OPERANDS RESULT_OPERANDS[a_mul] "r"(k->a_mul), [b_mul] "r"(k->b_mul), \
        [offset] "r"(k->offset), [result_shift] "r"(k->result_shift), [b_load] "i"((B_T) - 1 < 0 ? 0 : 4),
#elif defined(REQUANTISED)
#define FINISH SCALED RANGED BOTH(STORE, "0", "1", )
enum { FINISHES = SCALE_COUNT + RANGE_COUNT + 2 };
#define ROW_OPERANDS CHANNEL_OPERANDS
#define FINISH_OPERANDS SCALE_OPERANDS RANGE_OPERANDS
#else
#define FINISH BOTH(STORE, "2", "4", )
enum { FINISHES = 2 };
#define ROW_OPERANDS
#define FINISH_OPERANDS
#endif

/* Pairs of elements from `first` on of a row: the first term of both, then a loop over the others. */
static inline void pairs_of(const arguments *k, struct place at, int first, int count) {
    const int32_t *x = (const int32_t *)k->x + at.x + first;
    Y_T *y = (Y_T *)k->y + at.y + first;
    register int pairs __asm__("t5") = count;
#ifdef B_T
    const B_T *b = (const B_T *)k->b + at.b + first;
#endif
#if defined(REQUANTISED) && !defined(REQUANT_ONE)
    const int32_t *mul = k->mul + first, *add = k->add + first;
#endif
    __asm__ volatile(
        ".option push\n.option norvc\n.insn i 0x7b, 4, x1, %[pairs], %[length]\n" LOAD("t3", "%[x]")
        ".insn r 0x0b, 7, 0x10, t4, %[x], %[next]\n.insn i 0x7b, 4, x0, %[more], 8\n" LOAD("t5", "%[x]")
        ".insn r 0x0b, 7, 0x10, t6, %[x], %[next]\nadd t3, t3, t5\nadd t4, t4, t6\nadd %[x], %[x], %[back]\n" FINISH
        ".option pop\n"
        : ROW_OPERANDS [pairs] "+r"(pairs), [x] "+r"(x), [y] "+r"(y)
        : FINISH_OPERANDS [more] "r"(k->terms - 1), [next] "r"(4 * k->x_term - 4),
          [back] "r"(8 - 4 * k->x_term * k->terms), [length] "i"(2 * (8 + FINISHES))
        : "t3", "t4", "t6", "memory");
}

/* A row; of an odd number of elements, the last pair has one that was there before. */
static inline void dense_row(const arguments *k, struct place at) {
    const int length = k->extent[LAST];
    int first = 0, pairs = length >> 1;
    XP_UNKNOWN(pairs);
    for (;;) {
        pairs_of(k, at, first, pairs);
        if (first + 2 * pairs >= length) return;
        first = length - 2, pairs = 1;
    }
}
#endif

static inline void add_terms(const arguments *k) {
    struct place at = {0, 0, 0};
    int index[AXES] = {0}, axis;
    do {
#ifdef XPULP_INSN
        if (IS_DENSE(k) && k->extent[LAST] > 1)
            dense_row(k, at);
        else
#endif
            strided_row(k, at);
        if ((k->extent[0] | k->extent[1]) == 1) return; /* most often */
        for (axis = LAST - 1; axis >= 0; axis--) {
            const int steps = ++index[axis] < k->extent[axis] ? 1 : 1 - k->extent[axis];
            at.x += steps * k->x_step[axis], at.y += steps * k->y_step[axis];
#ifdef B_T
            at.b += steps * k->b_step[axis];
#endif
            if (steps == 1) break;
            index[axis] = 0;
        }
    } while (axis >= 0);
}

#endif
