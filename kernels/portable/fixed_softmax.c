/* y = table[max - x] / sum of table[max - x], in whole numbers of 32 bits by a reciprocal of Newton's method.
 *
 * x and y are rows with dense columns, any strides along five more axes; the table has 31 bits behind the point. An
 * element is read three times, with two loads of the table, a 64-bit product and a shift: instructions bound it.
 */
#include "fixed_softmax.h"

#include "fractions.h"
#include "loops.h"

/* 2 / x with 31 bits behind the point, of x from 1 to 2, the half of which is given: Newton's method on 29 bits. */
static inline int32_t reciprocal(int32_t half) {
    int32_t inverse = 1515870810 + multiply_fractions(half, -1010580540);
    for (int i = 0; i < 3; i++)
        inverse += multiply_fractions(inverse, (1 << 29) - multiply_fractions(half, inverse)) * 4;
    return inverse >= 1 << 30 ? INT32_MAX : inverse * 2;
}

void KERNEL(const struct fixed_softmax *k) {
    const TABLE_T *const table = (const TABLE_T *)k->table;
    const int columns = k->extent[LAST];
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        X_T max = x[0];
        for (int i = 1; i < columns; i++) max = x[i] > max ? x[i] : max;
        uint32_t sum = 0; /* 19 bits behind the point */
        for (int i = 0; i < columns; i++) sum += (table[max - x[i]] + 2048u) >> 12;
        if (sum == 0) sum = 1;
        int bits = 0;
        while (bits < 31 && sum >> bits) bits++;
        const int32_t scale = reciprocal((int32_t)(sum << (31 - bits)));
        const int shift = bits + 3;
        for (int i = 0; i < columns; i++) {
            const int64_t quotient = multiply_fractions(scale, (int32_t)table[max - x[i]]);
            const int32_t value = (int32_t)((quotient + ((int64_t)1 << (shift - 1))) >> shift) + k->zero_point;
            y[i] = (Y_T)(value < k->low ? k->low : value > k->high ? k->high : value);
        }
    } while (next_row(index, k->extent));
}
