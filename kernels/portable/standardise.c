/* y = epilogue((x - mean) / sqrt(mean of squares of (x - mean) + epsilon)), of rows of integers, CENTRED; else the zero
 * point stands for the mean, and the squares' own sum for their mean.
 *
 * x and y are rows with dense columns, any strides along five more axes. An element is read twice: a multiplication and
 * additions for its square, then two products of 64 bits, a shift and the epilogue: instructions bound it.
 */
#include "standardise.h"

#include "loops.h"
#include "roots.h"

#define BLOCK 64

/* An instance defines SQUARES_T, which holds a row's sum of squares, and CENTRED where the mean is taken off. */

/* factor / 2^shift = 2^fraction / sqrt(value / 2^16), value > 0; the factor has 31 bits. */
static inline int64_t reciprocal_root(uint64_t value, int fraction, int *shift) {
    int bits = 0;
    while (bits < 64 && value >> bits) bits++;
    const int exponent = (bits + 1) / 2 - 16; /* such that 31 or 32 bits are left */
    const uint64_t mantissa = exponent >= 0 ? value >> 2 * exponent : value << -2 * exponent;
    *shift = 38 + exponent - fraction;
    return (int64_t)(((uint64_t)1 << 62) / integer_root(mantissa << 32));
}

void KERNEL(const struct standardise *k) {
    const int columns = k->extent[LAST];
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        SQUARES_T squares = 0;
        int32_t total = 0;
        for (int i = 0; i < columns; i++) {
            const int32_t distance = x[i] - (CENTRED ? 0 : k->zero_point);
            total += x[i];
            squares += distance * distance;
        }
        const int64_t scale = CENTRED ? columns : 1, centre = CENTRED ? total : k->zero_point;
        const int64_t spread = CENTRED ? squares * scale - centre * centre : squares;
        int shift = 1;
        const int64_t factor =
            spread ? reciprocal_root(((uint64_t)spread << 16) + (uint64_t)k->epsilon, k->fraction, &shift) : 0;
        const int64_t half = (int64_t)1 << (shift - 1);
        for (int first = 0; first < columns; first += BLOCK) {
            const int count = columns - first < BLOCK ? columns - first : BLOCK;
            ACC_T acc[BLOCK];
            for (int i = 0; i < count; i++) {
                acc[i] = (ACC_T)(((scale * x[first + i] - centre) * factor + half) >> shift);
            }
            finish_row(acc, y + first, &k->epilogue, first, count);
        }
    } while (next_row(index, k->extent));
}
