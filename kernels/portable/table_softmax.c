/* y = quotient(table[max - x] * levels, sum of table[max - x]) + zero_point, or that by another table.
 *
 * x and y are rows with dense columns, any strides along five more axes. An element is read three times, with two loads
 * of the table and a division, which bounds it.
 */
#include "table_softmax.h"

#include "loops.h"

/* An instance defines WIDE_T, an unsigned type that holds every sum and numerator, and ROUNDED where quotients are
 * rounded half to even instead of down. */

/* The exponential of a distance from the maximum; with CURVE, k->table holds a, b, c and a period p in place of
 * entries: (a r^2 + b r + c) >> z, modulo 2^32, where distance = z p + r. */
static inline uint32_t entry(const TABLE_T *table, uint8_t distance) {
    if (!CURVE) return table[distance];
    const uint32_t z = distance / table[3], r = distance - z * table[3];
    return ((table[0] * r + table[1]) * r + table[2]) >> z;
}

static inline int64_t share(WIDE_T e, WIDE_T levels, WIDE_T sum) {
    if (!ROUNDED) return (int64_t)(e * levels / sum);
    const WIDE_T top = 2 * e * levels + sum, quotient = top / (2 * sum);
    return (int64_t)(quotient - ((quotient & 1) && quotient * 2 * sum == top));
}

void KERNEL(const struct table_softmax *k) {
    const TABLE_T *const table = (const TABLE_T *)k->table;
    const int columns = k->extent[LAST];
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        X_T max = x[0];
        for (int i = 1; i < columns; i++) max = x[i] > max ? x[i] : max;
        WIDE_T sum = 0;
        /*@ loop unroll columns; */
        for (int i = 0; i < columns; i++) sum += entry(table, (uint8_t)(max - x[i]));
        if (sum == 0) sum = 1;
        for (int i = 0; i < columns; i++) {
            const int64_t value = share(entry(table, (uint8_t)(max - x[i])), (WIDE_T)k->levels, sum) + k->zero_point;
            const int32_t result = (int32_t)(value < k->low ? k->low : value > k->high ? k->high : value);
#ifdef RESULTS_T
            y[i] = (Y_T)((const RESULTS_T *)k->results)[result - k->smallest];
#else
            y[i] = (Y_T)result;
#endif
        }
    } while (next_row(index, k->extent));
}
