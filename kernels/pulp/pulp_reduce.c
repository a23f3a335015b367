/* y = epilogue(the sum, mean, maximum or minimum of x over any axes), of bytes. REDUCTION is SUM, MAX, MIN or MEAN;
 * with COLUMNS the last axis is kept.
 *
 * x and y have any strides along six axes that are kept and six that are reduced. Of dense elements, loops take 4
 * instructions for eight; of four columns at once sums take 5 for four elements, the better of two 4 for eight.
 * Instructions bound it, of short reductions the epilogue.
 */
#include "pulp_reduce.h"

#include "pulp_finish.h"

enum { SUM, MAX, MIN, MEAN, AXES = 6, LAST = AXES - 1 };
enum {
    IS_SIGNED = (X_T)-1 < 0,
    IS_ADDED = REDUCTION == SUM || REDUCTION == MEAN,
    LEAST = IS_SIGNED ? -128 : 0,
    MOST = IS_SIGNED ? 127 : 255,
    FIRST = IS_ADDED   ? 0
    : REDUCTION == MAX ? LEAST
                       : MOST,
    DOT = IS_SIGNED ? XP_SDOTSP : XP_SDOTUP,
    BETTER = REDUCTION == MAX ? (IS_SIGNED ? XP_MAX4 : XP_MAX4U) : (IS_SIGNED ? XP_MIN4 : XP_MIN4U)
};
#define ALL 0x01010101u /* a byte, four times */

static inline int32_t dot4(uint32_t x, uint32_t w, int32_t acc) {
    return IS_SIGNED ? xp_sdotsp(x, w, acc) : xp_sdotup(x, w, acc);
}

static inline int32_t better(int32_t a, int32_t b) {
    return REDUCTION == MAX ? xp_max(a, b) : xp_min(a, b);
}

static inline int32_t joined(int32_t acc, int32_t value) {
    return IS_ADDED ? acc + value : better(acc, value);
}

/* The better one of each pair of bytes. */
static inline uint32_t better4(uint32_t a, uint32_t b) {
    uint32_t result = 0;
    XP_INSN(".insn r 0x57, 1, %3, %0, %1, %2" : "=r"(result) : "r"(a), "r"(b), "i"(BETTER));
    for (int i = 0; i < 32 && !XPULP_INSN; i += 8)
        result |= (uint32_t)(uint8_t)better((X_T)(a >> i & 255), (X_T)(b >> i & 255)) << i;
    return result;
}

#define LOAD_FAR(to) ".insn r 0x0b, 7, 0x10, " to ", %[x], %[step]\n"
#define DOT_WITH(acc, word, ones) ".insn r 0x57, 1, %[dot], %[" acc "], " word ", %[" ones "]\n"
#define KEEP_BETTER(acc, word) ".insn r 0x57, 1, %[better], %[" acc "], %[" acc "], " word "\n"

/* What `count` elements that follow each other, at least one, add to acc: two words at a time. */
static inline int32_t dense_run(int32_t acc, const X_T *x, int count) {
    const int pairs = count >> 3, rest = count & 3;
    if (IS_ADDED) {
        if (XPULP_INSN && pairs) {
            XP_BLOCK(BEGIN LOOP("%[n]", 4) XP_LOAD("t0", "x") XP_LOAD("t1", "x") DOT_WITH("acc", "t0", "ones")
                         DOT_WITH("acc", "t1", "ones") END : [x] "+r"(x),
                     [acc] "+r"(acc) : [n] "r"(pairs), [dot] "i"(DOT), [ones] "r"(ALL) : "t0", "t1", "memory");
        }
        for (int i = 0; i < 2 * pairs && !XPULP_INSN; i++, x += 4) acc = dot4(xp_load(x), ALL, acc);
        if (count & 4) acc = dot4(xp_load(x), ALL, acc), x += 4;
        if (rest) acc = dot4(xp_load_end(x + rest - count, count, rest), ALL, acc);
        return acc;
    }
    if (count < 4) {
        for (int i = 0; i < count; i++) acc = better(acc, x[i]);
        return acc;
    }
    uint32_t a = xp_load(x + count - 4); /* what is seen twice changes nothing */
    if (XPULP_INSN && pairs) {
        XP_BLOCK(BEGIN LOOP("%[n]", 4) XP_LOAD("t0", "x") XP_LOAD("t1", "x") KEEP_BETTER("a", "t0")
                     KEEP_BETTER("a", "t1") END : [x] "+r"(x),
                 [a] "+r"(a) : [n] "r"(pairs), [better] "i"(BETTER) : "t0", "t1", "memory");
    }
    for (int i = 0; i < 2 * pairs && !XPULP_INSN; i++, x += 4) a = better4(a, xp_load(x));
    if (count & 4) a = better4(a, xp_load(x));
    for (int i = 0; i < 32; i += 8) acc = better(acc, (X_T)(a >> i & 255));
    return acc;
}

/* What four columns of `count` rows that lie `step` apart add to acc: inner products with a one at the column. */
static inline void columns(int32_t acc[4], const X_T *x, int step, int count) {
    if (IS_ADDED) {
        int32_t s0 = acc[0], s1 = acc[1], s2 = acc[2], s3 = acc[3];
        XP_BLOCK(
            BEGIN LOOP("%[n]", 5) LOAD_FAR("t0") DOT_WITH("s0", "t0", "first") DOT_WITH("s1", "t0", "second")
                DOT_WITH("s2", "t0", "third") DOT_WITH("s3", "t0", "fourth") END : [x] "+r"(x),
            [s0] "+r"(s0), [s1] "+r"(s1), [s2] "+r"(s2), [s3] "+r"(s3) : [n] "r"(count), [step] "r"(step),
            [dot] "i"(DOT), [first] "r"(1), [second] "r"(1 << 8), [third] "r"(1 << 16), [fourth] "r"(1 << 24) : "t0",
            "memory");
        for (int i = 0; i < count && !XPULP_INSN; i++) {
            const uint32_t word = xp_load(x + i * step);
            s0 = dot4(word, 1, s0), s1 = dot4(word, 1 << 8, s1);
            s2 = dot4(word, 1 << 16, s2), s3 = dot4(word, 1u << 24, s3);
        }
        acc[0] = s0, acc[1] = s1, acc[2] = s2, acc[3] = s3;
    } else {
        uint32_t a = (FIRST & 255) * ALL;
        if (XPULP_INSN && (count & 1)) a = better4(a, xp_load(x)), x += step;
        if (XPULP_INSN && count > 1) {
            XP_BLOCK(BEGIN LOOP("%[n]", 4) LOAD_FAR("t0") LOAD_FAR("t1") KEEP_BETTER("a", "t0") KEEP_BETTER("a", "t1")
                         END : [x] "+r"(x),
                     [a] "+r"(a) : [n] "r"(count >> 1), [step] "r"(step), [better] "i"(BETTER) : "t0", "t1", "memory");
        }
        for (int i = 0; i < count && !XPULP_INSN; i++) a = better4(a, xp_load(x + i * step));
        for (int j = 0; j < 4; j++) acc[j] = better(acc[j], (X_T)(a >> 8 * j & 255));
    }
}

/* Advances the index over the outer five axes and the places *a and *b in elements; 0 behind the last index. */
static inline int advance(int index[AXES], const int *extent, const int *a_step, int *a, const int *b_step, int *b) {
    int axis = LAST - 1;
    XP_UNKNOWN(axis);
    for (; axis >= 0; axis--) {
        if (extent[axis] == 1) continue;
        const int is_last = ++index[axis] == extent[axis], steps = is_last ? 1 - extent[axis] : 1;
        *a += steps * a_step[axis];
        if (b) *b += steps * b_step[axis];
        if (!is_last) return 1;
        index[axis] = 0;
    }
    return 0;
}

static inline void store(const struct pulp_reduce *k, int32_t acc, Y_T *y, int index) {
    if (REDUCTION == MEAN && k->shift >= 0) {
        acc = (acc + (k->count >> 1)) >> k->shift;
    } else if (REDUCTION == MEAN) {
        acc = (acc + (acc > 0 ? k->count >> 1 : acc < 0 ? -(k->count >> 1) : 0)) / k->count;
    }
    const int channel = index * k->channel_step;
    const struct stages stages = stages_of(operands_at(&k->epilogue, &k->requantisation, channel), 0);
    *y = (Y_T)finish_with(acc, &stages, &k->epilogue, &k->requantisation);
}

/* One result. */
OUT_OF_LINE void alone(const struct pulp_reduce *k, const X_T *x, Y_T *y, int result) {
    const int count = k->reduced[LAST], step = k->x_reduced[LAST];
    int index[AXES] = {0}, at = 0;
    int32_t acc = FIRST;
    do {
        if (step == 1 || count == 1) {
            acc = dense_run(acc, x + at, count);
        } else {
            for (int i = 0; i < count; i++) acc = joined(acc, x[at + i * step]);
        }
    } while (k->count > count && advance(index, k->reduced, k->x_reduced, &at, 0, 0));
    store(k, acc, y, result);
}

/* Four results of neighbouring columns. */
OUT_OF_LINE void four(const struct pulp_reduce *k, const X_T *x, Y_T *y, int first) {
    const int count = k->reduced[LAST];
    int index[AXES] = {0}, at = 0;
    int32_t acc[4] = {FIRST, FIRST, FIRST, FIRST};
    do {
        columns(acc, x + at, k->x_reduced[LAST], count);
    } while (k->count > count && advance(index, k->reduced, k->x_reduced, &at, 0, 0));
    for (int j = 0; j < 4; j++) store(k, acc[j], y + j * k->y_kept[LAST], first + j);
}

void KERNEL(const struct pulp_reduce *k) {
    const int count = k->kept[LAST], x_step = k->x_kept[LAST], y_step = k->y_kept[LAST];
    int index[AXES] = {0}, x_at = 0, y_at = 0;
    do {
        const X_T *const x = (const X_T *)k->x + x_at;
        Y_T *const y = (Y_T *)k->y + y_at;
        int i = 0;
        for (; COLUMNS && i < count && count >= 4; i += 4) {
            const int first = i + 4 <= count ? i : count - 4; /* the last four may begin earlier */
            four(k, x + first, y + first * y_step, first);
        }
        for (; i < count; i++) alone(k, x + i * x_step, y + i * y_step, i);
    } while (advance(index, k->kept, k->x_kept, &x_at, k->y_kept, &y_at));
}
