/* y = epilogue((x - mean) / sqrt(mean of squares of (x - mean) + epsilon)), of rows of bytes, CENTRED; else the zero
 * point stands for the mean, and the squares' own sum for their mean.
 *
 * x and y are rows with dense columns, any strides along five more axes. Measuring takes 6 instructions for eight
 * elements, writing 16 or 20 and twice STAGES (pulp_finish.h) for two: instructions bound it, for short rows a root and
 * a division.
 *
 * An element is the upper word of a product: of its distance from the mean, shifted left as far as the row allows, and
 * of the row's reciprocal root with 32 bits. Results are below 2^29 (Kernel.accepts), which keeps the shifted distance
 * within 32 bits, and the bit that rounds lies in the upper word.
 */
#include "pulp_standardise.h"

enum { WITH_TOTAL = 1 };
#include "pulp_finish.h"
#include "pulp_rows.h"
#include "pulp_squares.h"

/* y = ((x*scale - centre) * factor + 2^(shift-1)) >> shift; the factor has 31 bits. */
struct row {
    uint32_t scale, centre, factor;
    int shift;
};

/* floor(sqrt(value * 2^32)), value at least 2^30: the root of the value by bits, the lower half by a division, which is
 * one too large where its square exceeds what is left (P. Zimmermann, Karatsuba square root, 1999). */
static inline uint32_t root(uint32_t value) {
    uint32_t high = 0, bit = 1 << 15;
    XP_UNKNOWN(bit);
    do high += (high + bit) * (high + bit) <= value ? bit : 0;
    while (bit >>= 1);
    const uint32_t rest = (value - high * high) << 15, low = rest / high, left = rest - low * high;
    return (high << 16) + low - ((uint64_t)left << 17 < (uint64_t)low * low);
}

static inline int length(uint64_t value) {
    const uint32_t high = (uint32_t)(value >> 32);
    return high ? 33 + xp_last_bit(high) : 1 + xp_last_bit((uint32_t)value);
}

OUT_OF_LINE struct row row_of(const struct pulp_standardise *k, const X_T *x) {
    const struct sums s = sums_of(x, k->columns);
    const uint32_t squares = (uint32_t)s.squares, total = (uint32_t)s.total, columns = (uint32_t)k->columns;
    const uint32_t scale = CENTRED ? columns : 1, centre = CENTRED ? total : (uint32_t)k->zero_point;
    const uint64_t spread = CENTRED ? (uint64_t)squares * columns - (uint64_t)((int64_t)s.total * s.total)
                                    : squares + centre * (columns * centre - 2 * total);
    if (!spread) return (struct row){0, 0, 0, 38};
    const uint64_t value = (spread << 16) + (uint64_t)k->epsilon;
    const int exponent = (length(value) + 1) / 2 - 16; /* such that 31 or 32 bits are left */
    const uint32_t inverse = (uint32_t)(((uint64_t)1 << 62) / root((uint32_t)(exponent < 0 ? value << -2 * exponent
                                                                                           : value >> 2 * exponent)));
    return (struct row){scale, centre, inverse, 38 + exponent - k->fraction};
}

/* The same as the upper word of a product: y = (upper word of (x*scale - centre) * factor + half) >> shift, in 32 bits.
 */
struct words {
    uint32_t scale, centre, factor;
    int32_t half;
    int shift;
};

static inline struct words words_of(struct row row) {
    /* A factor of 32 bits; only 2^31 itself has them already. */
    const int doubled = row.factor >> 31 ? 0 : 1;
    const int left = row.shift < 31 + doubled ? 32 - row.shift : 1 - doubled, right = row.shift + left + doubled - 32;
    return (struct words){row.scale << left, row.centre << left, row.factor << doubled, (1 << right) >> 1, right};
}

static inline int32_t standardised(X_T x, const struct words *row) {
    const int32_t distance = (int32_t)((uint32_t)x * row->scale - row->centre);
    return xp_add_shift((int32_t)((int64_t)distance * row->factor >> 32), row->half, row->shift);
}

/* Pairs of elements in a loop, where distances have 15 bits and a sign: products with two parts of the factor take
 * fewer cycles than an upper word. Returns how many elements are done. */
static inline int pairs(const struct pulp_standardise *k, const X_T *x, Y_T *y, const struct row *row) {
    if (!ALONE_IN_ASSEMBLY) return 0;
    const struct pulp_epilogue *const e = &k->epilogue;
    const struct pulp_requantisation *const r = &k->requantisation;
    const int count = k->extent[LAST] >> 1, size = 1 + xp_last_bit(255 * row->scale + 1);
    /* The upper part leaves a result with one bit behind the point, or has at most 15 bits. */
    const int bits = row->shift - 1 < 31 - size ? row->shift - 1 : 31 - size, right = row->shift - bits;
    if (sizeof(Y_T) != 1 || !count || size > 15 || row->factor >> 31 || bits < 1 || right > 30) return 0;
    enum { LOADS = REQUANT_ONE ? 0 : 4 };
#define BOTH(of) of("t0", "t2") of("t1", "t3")
#define LOAD(to, distance) ".insn i 0x0b, %[load], " to ", %[x], 1\n"
#define FROM(x, distance) "mv " distance ", %[centre]\n"
#define DISTANCE(x, distance) XP_MAC(distance, x, "%[scale]")
#define LOWER(to, distance) "mul " to ", " distance ", %[lower]\n"
#define BITS_OFF(to, distance) "sra " to ", " to ", %[bits]\n"
#define UPPER(to, distance) XP_MAC(to, distance, "%[upper]")
#define ROUND(to, distance) XP_ADD_SHIFT(to, "%[half]", "%[right]")
#define SCALED(acc, distance)                \
    EITHER(IS_ONE, "", XP_LOAD("t4", "mul")) \
    XP_LIMIT(acc) XP_LEFT(acc) EITHER(IS_ONE, XP_SCALE(acc, "%[mul]"), XP_SCALE(acc, "t4"))
#define ENDED(acc, distance) \
    EITHER(IS_ONE, XP_SUM(acc, "%[add]"), XP_LOAD("t5", "add") XP_SUM(acc, "t5")) XP_RANGE(acc, acc)
#define FOUND(acc, distance) XP_FIND(acc)
#define STORE(acc, distance) ".insn s 0x2b, 0, " acc ", 1(%[y])\n"
    const struct operands s = operands_at(e, r, 0);
    uintptr_t mul = REQUANT_ONE ? (uintptr_t)s.of_all.mul : (uintptr_t)s.mul;
    uintptr_t add = REQUANT_ONE ? (uintptr_t)s.of_all.add : (uintptr_t)s.add;
    XP_BLOCK(BEGIN ".insn i 0x7b, 4, x0, %[n], %[length]\n" BOTH(LOAD) BOTH(FROM) BOTH(DISTANCE) BOTH(LOWER)
                 BOTH(BITS_OFF) BOTH(UPPER) BOTH(ROUND) BOTH(SCALED) BOTH(ENDED) BOTH(FOUND) BOTH(STORE)
                     END : [x] "+r"(x),
             [y] "+r"(y), [mul] "+r"(mul), [add] "+r"(add) : [n] "r"(count),
             [length] "i"(2 * (16 + LOADS + 2 * STAGES)), [load] "i"((X_T)-1 < 0 ? 0 : 4), [scale] "r"(row->scale),
             [centre] "r"(-row->centre), [lower] "r"(row->factor & (((uint32_t)1 << bits) - 1)),
             [upper] "r"(row->factor >> bits), [half] "r"(1 << right >> 1), [bits] "r"(bits), [right] "r"(right),
             XP_ENDS(e, r) : "t0", "t1", "t2", "t3", "t4", "t5", "memory");
    return 2 * count;
}

OUT_OF_LINE void scale(const struct pulp_standardise *k, const X_T *x, Y_T *y, struct row row) {
    const int done = pairs(k, x, y, &row), count = k->extent[LAST];
    if (done == count) return;
    const struct pulp_epilogue e = k->epilogue;
    const struct pulp_requantisation r = k->requantisation;
    const struct words words = words_of(row);
    struct operands s = operands_at(&e, &r, done);
    int left = count - done;
    for (x += done, y += done; left > 1; left -= 2, x += 2, y += 2, s = operands_after(s, 2)) {
        const struct stages first = stages_of(s, 0), second = stages_of(s, 1);
        const int32_t a = standardised(x[0], &words), b = standardised(x[1], &words);
        y[0] = (Y_T)finish_with(a, &first, &e, &r), y[1] = (Y_T)finish_with(b, &second, &e, &r);
    }
    if (left) {
        const struct stages last = stages_of(s, 0);
        *y = (Y_T)finish_with(standardised(*x, &words), &last, &e, &r);
    }
}

void KERNEL(const struct pulp_standardise *k) {
    int index[AXES] = {0}, x_at = 0, y_at = 0;
    do {
        const X_T *const row = (const X_T *)k->x + x_at;
        scale(k, row + k->first, (Y_T *)k->y + y_at, row_of(k, row));
    } while (next_rows(index, k->extent, k->x_step, &x_at, k->y_step, &y_at, 0, 0));
}
