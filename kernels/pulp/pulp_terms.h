/* Sums of terms of 32 bits, for sources that define `arguments`, the structure of a call, and HAS_ADDEND, whether
 * another operand b is added to what a sum is requantised to.
 *
 * An instance has one of REQUANT_NARROW and REQUANT_HIGH or none, and any of REQUANT_CLIPPED, REQUANT_ONE and
 * CLIP_WHOLE, see pulp_finish.h. With an addend, CLIP_WHOLE is of the sum as int8; RESULT_SIGNED or RESULT_UNSIGNED say
 * that the limits of the result are those of int8 or uint8, and SUM_SHORT that the factor of the sum has 16 bits. */
#ifndef DEEPLOY_PULP_TERMS_H
#define DEEPLOY_PULP_TERMS_H

#include "xpulp.h"

enum { AXES = 3, LAST = AXES - 1, REQUANTISED = REQUANT_NARROW || REQUANT_HIGH };

/* What is added behind the requantisation: ((sum*a_mul + b*b_mul + offset) >> shift, low, high). */
struct addend {
    const void *b;
    const int *b_step;
    int32_t a_mul, b_mul, offset;
    int shift;
    int32_t low, high;
};

static inline struct addend addend_of(const arguments *k);

/* What becomes of a sum, which is of a channel: a value that Y_T holds. `place` is that of b. */
static inline int32_t finished(const arguments *k, int32_t acc, int channel, int place) {
    const int32_t mul = REQUANT_ONE ? k->requantisation.mul : REQUANTISED ? k->mul[channel] : 0;
    const int32_t add = REQUANT_ONE ? k->requantisation.add : REQUANTISED ? k->add[channel] : 0;
    if (REQUANT_CLIPPED) acc = xp_clip(acc, k->requantisation.limit);
    if (REQUANT_NARROW) acc = xp_mac(add, acc, mul) >> k->requantisation.shift;
    if (REQUANT_HIGH) {
        acc = xp_mulh((int32_t)((uint32_t)acc << k->requantisation.left), mul);
        acc = xp_add_shift(acc, add, k->requantisation.shift);
    }
    if (REQUANTISED) acc = xp_max(k->low, xp_min(k->high, acc));
    if (HAS_ADDEND) {
        const struct addend a = addend_of(k);
        acc = xp_mac(xp_mac(a.offset, acc, a.a_mul), ((const B_T *)a.b)[place], a.b_mul) >> a.shift;
        acc = xp_max(a.low, xp_min(a.high, acc));
    }
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
        acc = finished(k, acc, i, HAS_ADDEND ? at.b + i * addend_of(k).b_step[LAST] : 0);
        ((Y_T *)k->y)[at.y + i * k->y_step[LAST]] = (Y_T)acc;
    }
}

/* Assembly on t3 and t4, the sums of two neighbours, in turns: a product is there one instruction later. With
 * REQUANT_ONE their factor and summand are in registers, else these lead to those of the channels, which t5 and t6
 * take. */
enum {
    FORM = REQUANT_CLIPPED | REQUANT_HIGH << 1 | REQUANT_ONE << 2 | CLIP_WHOLE << 3 | HAS_ADDEND << 4 |
        (RESULT_SIGNED | RESULT_UNSIGNED) << 5 | SUM_SHORT << 6 | REQUANTISED << 7,
    /* of limits and of loads, where bytes have no sign */
    UNSIGNED = (!HAS_ADDEND && (Y_T)-1 > 0) << 8 | RESULT_UNSIGNED << 9 | ((B_T)-1 > 0) << 10,
    RANGES = CLIP_WHOLE ? 2 : 4,
    SCALES = 4 + 2 * REQUANT_CLIPPED + (REQUANT_ONE ? 0 : 4) + 2 * REQUANT_HIGH,
    RESULTS = RESULT_SIGNED || RESULT_UNSIGNED ? 2 : 4,
    FINISHES = !REQUANTISED ? 2 : SCALES + RANGES + (HAS_ADDEND ? RESULTS + 10 : 2)
};
#define BOTH(of, ...) of("t3", __VA_ARGS__) of("t4", __VA_ARGS__)
#define MUL(s, by, ...) "mul " s ", " s ", " by "\n"
#define MULH(s, by, ...) "mulh " s ", " s ", " by "\n"
#define ADD_SHIFT(s, add, by, ...) XP_ADD_SHIFT(s, add, by)
#define LEFT(s, by, ...) "sll " s ", " s ", " by "\n"
#define LIMIT(s, to, ...) XP_CLIP(s, s, to)
#define CLIP(s, bit, to, ...) ".insn r 0x33, 5 + (%[form] >> " bit " & 1), 0x0a, " s ", " s ", " to "\n"
#define WITHIN(s, low, high, ...) XP_MAX(s, s, low) XP_MIN(s, s, high)
#define SHORT_MUL(s, by, ...) ".insn r 0x5b, 0, 0x40, " s ", " s ", " by "\n"
#define STORE(s, kind, size, ...) ".insn s 0x2b, " kind ", " s ", " size "(%[y])\n"
#define LOAD_B(to) ".insn i 0x0b, 4 * (%[form] >> 10 & 1), " to ", %[b], 1\n"

#define BY_CHANNEL(product) \
    XP_LOAD("t5", "mul")    \
    XP_LOAD("t6", "mul") product("t3", "t5", ) product("t4", "t6", )
#define BY(product) EITHER("%[form] & 4", BOTH(product, "%[mul]", ), BY_CHANNEL(product))
#define SHIFTED_BY_CHANNEL \
    XP_LOAD("t5", "add")   \
    XP_LOAD("t6", "add") ADD_SHIFT("t3", "t5", "%[shift]", ) ADD_SHIFT("t4", "t6", "%[shift]", )
#define SHIFTED EITHER("%[form] & 4", BOTH(ADD_SHIFT, "%[add]", "%[shift]", ), SHIFTED_BY_CHANNEL)
#define SCALED                                   \
    IF("%[form] & 1", BOTH(LIMIT, "%[limit]", )) \
    EITHER("%[form] & 2", BOTH(LEFT, "%[left]", ) BY(MULH), BY(MUL)) SHIFTED
#define RANGED EITHER("%[form] & 8", BOTH(CLIP, "8", "%[high]", ), BOTH(WITHIN, "%[low]", "%[high]", ))
#define JOINED                                                                     \
    EITHER("%[form] & 64", BOTH(SHORT_MUL, "%[a_mul]", ), BOTH(MUL, "%[a_mul]", )) \
    XP_MAC("t3", "t5", "%[b_mul]") XP_MAC("t4", "t6", "%[b_mul]") BOTH(ADD_SHIFT, "%[offset]", "%[result_shift]", )
#define RESULT \
    EITHER("%[form] & 32", BOTH(CLIP, "9", "%[result_high]", ), BOTH(WITHIN, "%[result_low]", "%[result_high]", ))
#define FINISH                                                                                           \
    EITHER("%[form] & 128",                                                                              \
           SCALED IF("%[form] & 16", LOAD_B("t5") LOAD_B("t6")) RANGED IF("%[form] & 16", JOINED RESULT) \
               BOTH(STORE, "0", "1", ),                                                                  \
           BOTH(STORE, "2", "4", ))

/* Pairs of elements from `first` on of a row: the first term of both, then a loop over the others. */
static inline void pairs_of(const arguments *k, struct place at, int first, int count) {
    const struct addend a = addend_of(k);
    const int32_t *x = (const int32_t *)k->x + at.x + first;
    const B_T *b = HAS_ADDEND ? (const B_T *)a.b + at.b + first : 0;
    Y_T *y = (Y_T *)k->y + at.y + first;
    uintptr_t mul = REQUANT_ONE ? (uintptr_t)k->requantisation.mul : REQUANTISED ? (uintptr_t)(k->mul + first) : 0;
    uintptr_t add = REQUANT_ONE ? (uintptr_t)k->requantisation.add : REQUANTISED ? (uintptr_t)(k->add + first) : 0;
    XP_BLOCK(
        "mv t5, %[pairs]\n" BEGIN ".insn i 0x7b, 4, x1, t5, %[length]\n" XP_LOAD("t3", "x")
        ".insn r 0x0b, 7, 0x10, t4, %[x], %[next]\n.insn i 0x7b, 4, x0, %[more], 8\n" XP_LOAD("t5", "x")
        ".insn r 0x0b, 7, 0x10, t6, %[x], %[next]\nadd t3, t3, t5\nadd t4, t4, t6\nadd %[x], %[x], %[back]\n" FINISH END
        : [mul] "+r"(mul), [add] "+r"(add), [b] "+r"(b), [x] "+r"(x), [y] "+r"(y)
        : [pairs] "r"(count), [limit] "ri"(REQUANT_CLIPPED ? k->requantisation.limit : 0),
          [shift] "ri"(REQUANTISED ? k->requantisation.shift : 0),
          [left] "ri"(REQUANT_HIGH ? k->requantisation.left : 0), [low] "ri"(REQUANTISED && !CLIP_WHOLE ? k->low : 0),
          [high] "ri"(REQUANTISED ? k->high : 0), [a_mul] "ri"(HAS_ADDEND ? a.a_mul : 0),
          [b_mul] "ri"(HAS_ADDEND ? a.b_mul : 0), [offset] "ri"(HAS_ADDEND ? a.offset : 0),
          [result_shift] "ri"(HAS_ADDEND ? a.shift : 0),
          [result_low] "ri"(HAS_ADDEND && RESULTS == 4 ? a.low : 0), [result_high] "ri"(HAS_ADDEND ? a.high : 0),
          [more] "r"(k->terms - 1), [next] "r"(4 * k->x_term - 4), [back] "r"(8 - 4 * k->x_term * k->terms),
          [length] "i"(2 * (8 + FINISHES)), [form] "i"((int)FORM | (int)UNSIGNED)
        : "t3", "t4", "t5", "t6", "memory");
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

static inline void add_terms(const arguments *k) {
    struct place at = {0, 0, 0};
    int index[AXES] = {0}, axis;
    const int is_dense = k->x_step[LAST] == 1 && k->y_step[LAST] == 1 &&
                         (!HAS_ADDEND || addend_of(k).b_step[LAST] == 1) && k->extent[LAST] > 1;
    do {
        if (XPULP_INSN && is_dense)
            dense_row(k, at);
        else
            strided_row(k, at);
        if ((k->extent[0] | k->extent[1]) == 1) return; /* most often */
        for (axis = LAST - 1; axis >= 0; axis--) {
            const int steps = ++index[axis] < k->extent[axis] ? 1 : 1 - k->extent[axis];
            at.x += steps * k->x_step[axis], at.y += steps * k->y_step[axis];
            if (HAS_ADDEND) at.b += steps * addend_of(k).b_step[axis];
            if (steps == 1) break;
            index[axis] = 0;
        }
    } while (axis >= 0);
}

#endif
