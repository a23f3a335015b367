/* Rows of bytes over the root of their squares, CENTRED where the mean is taken off first.
 *
 * An element is the upper word of a product: of its distance from the mean, shifted left as far as the row allows, and
 * of the row's reciprocal root with 32 bits. Results are below 2^29 (Kernel.accepts), which keeps the shifted distance
 * within 32 bits, and the bit that rounds lies in the upper word.
 */
#include "pulp_standardise.h"

#include "pulp_rows.h"
#define WITH_TOTAL
#include "pulp_squares.h"

/* y = (upper word of (x*scale - centre) * factor + half) >> shift, in 32 bits. */
struct row {
    uint32_t scale, centre, factor;
    int32_t half;
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
#ifdef CENTRED
    const uint32_t scale = columns, centre = total;
    const uint64_t spread = (uint64_t)squares * columns - (uint64_t)((int64_t)s.total * s.total);
#else
    const uint32_t scale = 1, centre = (uint32_t)k->zero_point;
    const uint64_t spread = squares + centre * (columns * centre - 2 * total);
#endif
    if (!spread) return (struct row){0, 0, 0, 0, 0};
    const uint64_t value = (spread << 16) + (uint64_t)k->epsilon;
    const int exponent = (length(value) + 1) / 2 - 16; /* such that 31 or 32 bits are left */
    const uint32_t factor = (uint32_t)(((uint64_t)1 << 62) /
                                       root((uint32_t)(exponent < 0 ? value << -2 * exponent : value >> 2 * exponent)));
    /* A factor of 32 bits; only 2^31 itself has them already. */
    const int shift = 38 + exponent - k->fraction, doubled = factor >> 31 ? 0 : 1;
    const int left = shift < 31 + doubled ? 32 - shift : 1 - doubled, right = shift + left + doubled - 32;
    return (struct row){scale << left, centre << left, factor << doubled, (1 << right) >> 1, right};
}

static inline int32_t standardised(X_T x, const struct row *row) {
    const int32_t distance = (int32_t)((uint32_t)x * row->scale - row->centre);
    return xp_add_shift((int32_t)((int64_t)distance * row->factor >> 32), row->half, row->shift);
}

OUT_OF_LINE void scale(const struct pulp_standardise *k, const X_T *x, Y_T *y, struct row row) {
    const struct pulp_epilogue e = k->epilogue;
    const struct pulp_requantisation r = k->requantisation;
    struct operands s = operands_at(&e, &r, 0);
    int left = k->extent[LAST];
    for (; left > 1; left -= 2, x += 2, y += 2, s = operands_after(s, 2)) {
        const struct stages first = stages_of(s, 0), second = stages_of(s, 1);
        const int32_t a = standardised(x[0], &row), b = standardised(x[1], &row);
        y[0] = (Y_T)finish_with(a, &first, &e, &r), y[1] = (Y_T)finish_with(b, &second, &e, &r);
    }
    if (left) {
        const struct stages last = stages_of(s, 0);
        *y = (Y_T)finish_with(standardised(*x, &row), &last, &e, &r);
    }
}

void KERNEL(const struct pulp_standardise *k) {
    int index[AXES] = {0}, x_at = 0, y_at = 0;
    do {
        const X_T *const row = (const X_T *)k->x + x_at;
        scale(k, row + k->first, (Y_T *)k->y + y_at, row_of(k, row));
    } while (next_rows(index, k->extent, k->x_step, &x_at, k->y_step, &y_at, 0, 0));
}
