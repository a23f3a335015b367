/* y = quotient(table[max - x] * levels, sum of table[max - x]) + zero_point, or that by another table: softmax of rows
 * of bytes by a table of exponentials, where sums and numerators fit 32 bits.
 *
 * x and y are rows with dense columns, any strides along five more axes. The maximum takes 4 instructions for eight
 * elements, the sum 18 for four, and quotients 20 for two (ROUNDED), 12 for one (CORRECTED) or 18 for two, and 1 to 3
 * each for limits and the other table. Loads of the table are most of what waits: instructions bound it.
 *
 * The sum of a row divides all its elements: they are multiplied by an inverse of it. An instance defines ROUNDED where
 * quotients are rounded half to even instead of down, or CORRECTED where they are rounded down and the sum is too wide
 * for an exact inverse: with floor((2^32 - 1) / divisor) a quotient is right, or too small by one. Else, with
 * numerators of n bits and 2^length >= divisor, floor(2^(32 + more) / divisor) + 1 is exact for more >= n + length - 32
 * (Granlund and Montgomery, Division by invariant integers using multiplication, theorem 4.2); it fits 32 bits, and its
 * own division does where n + 2 * length < 64. CLIPPED: quotients may leave the limits.
 *
 * Quotients that are rounded have `bits` fractional ones first, which are too small by less than 2.1 units: only where
 * half a step more has a fraction of 0, or one of less than three units below 1, a division decides. */
#include "pulp_softmax.h"

#include "pulp_rows.h"
#include "xpulp.h"

enum { IS_SIGNED = (X_T)-1 < 0 };

static inline uint32_t larger4(uint32_t a, uint32_t b) {
    return IS_SIGNED ? xp_max4(a, b) : xp_max4u(a, b);
}

static inline int32_t maximum(const X_T *x, int columns) {
    int32_t result = x[0];
    if (columns >= 4) {
        uint32_t most = xp_load(x + columns - 4);
        if (XPULP_INSN && columns >= 8)
            XP_BLOCK(BEGIN LOOP("%[n]", 4) XP_LOAD("t0", "x") XP_LOAD("t1", "x")
                     ".insn r 0x57, 1, %[max], %[most], %[most], t0\n"
                     ".insn r 0x57, 1, %[max], %[most], %[most], t1\n" END
                     : [x] "+r"(x), [most] "+r"(most)
                     : [n] "r"(columns >> 3), [max] "i"(IS_SIGNED ? XP_MAX4 : XP_MAX4U)
                     : "t0", "t1", "memory");
        if (XPULP_INSN && (columns & 4)) most = larger4(most, xp_load(x));
        for (int i = 0; i + 4 < columns && !XPULP_INSN; i += 4) most = larger4(most, xp_load(x + i));
        most = larger4(most, most >> 16);
        most = larger4(most, most >> 8);
        return (X_T)(most & 255);
    }
    for (int i = 1; i < columns; i++) result = xp_max(result, x[i]);
    return result;
}

#define BYTE(to, at) ".insn r 0x33, 1, 0x67, " to ", t0, x" at "\n" /* p.extractu of 8 bits */
#define OFFSET(r) "slli " r ", " r ", 2\n"
#define ENTRY(r) ".insn r 0x03, 7, 0x10, " r ", %[table], " r "\n"
#define FETCH(r) OFFSET(r) ENTRY(r)

static inline uint32_t sum_of(const uint32_t *table, const X_T *x, int32_t max, int columns) {
    uint32_t sum = 0;
    if (XPULP_INSN && columns >= 4)
        XP_BLOCK(BEGIN LOOP("%[n]", 18) XP_LOAD("t0", "x") ".insn r 0x57, 1, 4, t0, %[max], t0\n" BYTE("t1", "0")
                             BYTE("t2", "8") BYTE("t3", "16") "srli t0, t0, 24\n" FETCH("t1") FETCH("t2") FETCH("t3")
                                 FETCH("t0") "add %[sum], %[sum], t1\nadd %[sum], %[sum], t2\nadd %[sum], %[sum], t3\n"
                                             "add %[sum], %[sum], t0\n" END
                         : [x] "+r"(x), [sum] "+r"(sum)
                         : [n] "r"(columns >> 2), [max] "r"((uint32_t)(max & 255) * 0x01010101u), [table] "r"(table)
                         : "t0", "t1", "t2", "t3", "memory");
    if (XPULP_INSN) {
        columns &= 3;
        XP_UNKNOWN(columns);
    }
    for (int i = 0; i < columns; i++) sum += table[max - x[i]];
    return sum;
}

/* What the elements of a row share. */
struct shares {
    const uint32_t *table;
    int32_t max;
    uint32_t levels, sum, offset, divisor, inverse;
    int more;
};

enum { MOST_BITS = 16, UNCERTAIN = 3 };

/* 2^(63 - n) / sum from below, where 2^n <= sum < 2^(n + 1), too small by less than 13: a division by its 16 highest
 * bits, and a step of Newton's. */
static inline uint32_t inverse_of(uint32_t sum, int last) {
    const uint32_t normal = sum << (31 - last), rough = UINT32_MAX / (normal >> 16) << 15;
    const int32_t error = (int32_t)(((uint32_t)1 << 31) - (uint32_t)((uint64_t)rough * normal >> 32)) - 1;
    return rough + (uint32_t)((int64_t)(2 * error) * rough >> 32);
}

static inline struct shares rounded_shares(const struct pulp_softmax *k, const uint32_t *table, int32_t max,
                                           uint32_t sum) {
    const uint32_t levels = (uint32_t)k->levels;
    const int last = xp_last_bit(sum), bits = xp_max(0, xp_min(MOST_BITS, last - xp_last_bit(levels) - 1));
    const uint32_t offset = bits ? ((uint32_t)k->zero_point << bits) + ((uint32_t)1 << (bits - 1)) + UNCERTAIN - 1 : 0;
    const uint32_t inverse = (uint32_t)((uint64_t)levels * inverse_of(sum, last) >> (last - bits));
    return (struct shares){table, max, levels, sum, offset, ((uint32_t)1 << bits) - 1, inverse, bits};
}

static inline int32_t rounded_share(const struct pulp_softmax *k, const struct shares *s, uint32_t e) {
    const uint32_t found = (uint32_t)((uint64_t)e * s->inverse >> 32) + s->offset;
    if ((found & s->divisor) >= UNCERTAIN) return (int32_t)found >> s->more;
    const uint32_t top = 2 * e * s->levels + s->sum, divisor = 2 * s->sum, quotient = top / divisor;
    return (int32_t)(quotient - (quotient * divisor == top ? quotient & 1 : 0)) + k->zero_point;
}

static inline struct shares corrected_shares(const struct pulp_softmax *k, const uint32_t *table, int32_t max,
                                             uint32_t sum) {
    return (struct shares){table, max, (uint32_t)k->levels, sum, 0, sum, UINT32_MAX / sum, 0};
}

static inline int32_t corrected_share(const struct pulp_softmax *k, const struct shares *s, uint32_t e) {
    const uint32_t top = e * s->levels, quotient = (uint32_t)((uint64_t)top * s->inverse >> 32);
    return (int32_t)(quotient + (top - quotient * s->divisor >= s->divisor)) + k->zero_point;
}

/* A sum of one is taken twice, and so are numerators: the inverse of one has 33 bits. */
static inline struct shares exact_shares(const struct pulp_softmax *k, const uint32_t *table, int32_t max,
                                         uint32_t sum) {
    const uint32_t divisor = sum == 1 ? 2 : sum, levels = (uint32_t)k->levels << (sum == 1);
    const int least = k->bits + xp_last_bit(divisor - 1) + 1 - 32, more = xp_max(least, 0);
    const uint32_t whole = UINT32_MAX / divisor, rest = UINT32_MAX - whole * divisor + 1;
    const uint32_t inverse = more ? (whole << more) + (rest << more) / divisor + 1 : whole + (rest == divisor) + 1;
    return (struct shares){table, max, levels, sum, 0, divisor, inverse, more};
}

static inline int32_t exact_share(const struct pulp_softmax *k, const struct shares *s, uint32_t e) {
    return (int32_t)((uint32_t)((uint64_t)(e * s->levels) * s->inverse >> 32) >> s->more) + k->zero_point;
}

static inline struct shares shares(const struct pulp_softmax *k, const uint32_t *table, int32_t max, uint32_t sum) {
    return ROUNDED     ? rounded_shares(k, table, max, sum)
           : CORRECTED ? corrected_shares(k, table, max, sum)
                       : exact_shares(k, table, max, sum);
}

/* The other table is there. */
#ifdef RESULTS_T
enum { LOOKS_UP = 1 };
#else
enum { LOOKS_UP = 0 };
#define RESULTS_T int8_t
#endif

/* What becomes of an element. */
static inline Y_T finished(const struct pulp_softmax *k, const struct shares *s, X_T x) {
    const uint32_t e = s->table[s->max - x];
    int32_t result = ROUNDED ? rounded_share(k, s, e) : CORRECTED ? corrected_share(k, s, e) : exact_share(k, s, e);
    if (CLIPPED) result = xp_max(k->low, xp_min(k->high, result));
    return (Y_T)(LOOKS_UP ? (int32_t)((const RESULTS_T *)k->results)[result - k->smallest] : result);
}

/* What the loops have for an element in a register, and instructions for limits and the other table. */
enum { ENDS = 2 * CLIPPED + LOOKS_UP };
#define CLIP(r) IF("%[form] & 1", XP_MAX(r, r, "%[low]") XP_MIN(r, r, "%[high]"))
#define FIND(r) IF("%[form] & 2", ".insn r 0x03, 7, 0x20, " r ", %[results], " r "\n")
#define LOAD(r) ".insn i 0x0b, %[load], " r ", %[x], 1\n"
#define DISTANCE(r) "sub " r ", %[max], " r "\n"
#define TOP(r) "mul " r ", " r ", %[levels]\n"
#define SHIFT(r) "add " r ", " r ", %[zero]\n"
#define STORE(r) ".insn s 0x2b, %[store], " r ", %[bytes](%[y])\n"
#define OPERANDS                                                                                      \
    [load] "i"(IS_SIGNED ? 0 : 4), [max] "r"(s->max), [table] "r"(s->table), [levels] "r"(s->levels), \
        [inverse] "r"(s->inverse), [zero] "r"(k->zero_point), [low] "ri"(CLIPPED ? k->low : 0),       \
        [high] "ri"(CLIPPED ? k->high : 0),                                                           \
        [results] "ri"(LOOKS_UP ? (uintptr_t)k->results - (uintptr_t)(intptr_t)k->smallest : 0),      \
        [store] "i"(sizeof(Y_T) == 4 ? 2 : 0), [bytes] "i"(sizeof(Y_T)), [form] "i"(CLIPPED | LOOKS_UP << 1)

#define QUOTIENT(r) "mulhu " r ", " r ", %[inverse]\n"
#define BOTH(STEP) STEP("t0") STEP("t1")
#define MOVED(r) "add " r ", " r ", %[offset]\n"
#define SIGNED_MORE(r) "sra " r ", " r ", %[more]\n"

/* Two at a time: no instruction waits for the one before it. The loop is left where one of both is uncertain. */
static inline void divide_rounded(const struct pulp_softmax *k, const struct shares *s, const X_T *x, Y_T *y) {
    const X_T *const end = x + k->extent[LAST];
    while (end - x > 1) {
        const X_T *const from = x;
        const Y_T *const to = y;
        XP_BLOCK(
            BEGIN ".insn i 0x7b, 4, x0, %[n], %[length]\n" BOTH(LOAD) BOTH(DISTANCE) BOTH(OFFSET)
                BOTH(ENTRY) BOTH(QUOTIENT) BOTH(MOVED)
            "and t2, t0, %[fraction]\nand t3, t1, %[fraction]\n.insn r 0x33, 5, 2, t2, t2, t3\n"
            "bltu t2, %[uncertain], 1f\n" BOTH(SIGNED_MORE) BOTH(CLIP) BOTH(FIND) BOTH(STORE) "1:\n" END
            : [x] "+r"(x), [y] "+r"(y)
            : [n] "r"((end - x) >> 1), [length] "i"(4 * (10 + ENDS)), [more] "r"(s->more),
              [offset] "r"(s->offset), [fraction] "r"(s->divisor), [uncertain] "r"(UNCERTAIN), OPERANDS
            : "t0", "t1", "t2", "t3", "memory");
        if (x - from == y - to) break;
        y[0] = finished(k, s, x[-2]), y[1] = finished(k, s, x[-1]);
        y += 2;
    }
    if (x != end) *y = finished(k, s, *x);
}

static inline void divide_corrected(const struct pulp_softmax *k, const struct shares *s, const X_T *x, Y_T *y) {
    XP_BLOCK(
        BEGIN ".insn i 0x7b, 4, x0, %[n], %[length]\n" LOAD("t0") DISTANCE("t0") OFFSET("t0")
            ENTRY("t0") TOP("t0")
        "mulhu t1, t0, %[inverse]\n"
        ".insn r 0x33, 1, 0x21, t0, t1, %[divisor]\nsltu t2, t0, %[divisor]\nxori t2, t2, 1\nadd t1, t1, t2\n" SHIFT(
            "t1") CLIP("t1") FIND("t1") STORE("t1") END
        : [x] "+r"(x), [y] "+r"(y)
        : [n] "r"(k->extent[LAST]), [length] "i"(2 * (12 + ENDS)), [divisor] "r"(s->divisor), OPERANDS
        : "t0", "t1", "t2", "memory");
}

#define MORE(r) "srl " r ", " r ", %[more]\n"

/* Two at a time: no instruction waits for the one before it. */
static inline void divide_exactly(const struct pulp_softmax *k, const struct shares *s, const X_T *x, Y_T *y) {
    if (k->extent[LAST] & 1)
        XP_BLOCK(LOAD("t0") DISTANCE("t0") OFFSET("t0") ENTRY("t0") TOP("t0") QUOTIENT("t0") MORE("t0") SHIFT("t0")
                     CLIP("t0") FIND("t0") STORE("t0") : [x] "+r"(x),
                 [y] "+r"(y) : [more] "r"(s->more), OPERANDS : "t0", "memory");
    if (k->extent[LAST] > 1)
        XP_BLOCK(BEGIN ".insn i 0x7b, 4, x0, %[n], %[length]\n" BOTH(LOAD) BOTH(DISTANCE) BOTH(OFFSET) BOTH(ENTRY)
                     BOTH(TOP) BOTH(QUOTIENT) BOTH(MORE) BOTH(SHIFT) BOTH(CLIP) BOTH(FIND) BOTH(STORE)
                         END : [x] "+r"(x),
                 [y] "+r"(y) : [n] "r"(k->extent[LAST] >> 1), [length] "i"(4 * (9 + ENDS)), [more] "r"(s->more),
                 OPERANDS : "t0", "t1", "memory");
}

static inline void divide(const struct pulp_softmax *k, const struct shares *s, const X_T *x, Y_T *y) {
    for (int i = 0; i < k->extent[LAST] && !XPULP_INSN; i++) y[i] = finished(k, s, x[i]);
    if (!XPULP_INSN) return;
    if (ROUNDED)
        divide_rounded(k, s, x, y);
    else if (CORRECTED)
        divide_corrected(k, s, x, y);
    else
        divide_exactly(k, s, x, y);
}

static inline void row(const struct pulp_softmax *k, const X_T *x, Y_T *y) {
    const uint32_t *const table = (const uint32_t *)k->table;
    const int32_t max = maximum(x, k->columns);
    const uint32_t total = sum_of(table, x, max, k->columns);
    const struct shares common = shares(k, table, max, total ? total : 1);
    divide(k, &common, x + k->first, y);
}

void KERNEL(const struct pulp_softmax *k) {
    int index[AXES] = {0}, x_at = 0, y_at = 0;
    do {
        row(k, (const X_T *)k->x + x_at, (Y_T *)k->y + y_at);
    } while (next_rows(index, k->extent, k->x_step, &x_at, k->y_step, &y_at, 0, 0));
}
