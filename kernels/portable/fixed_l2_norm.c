/* y = 128 * (x - zero_point) / sqrt(sum of (x - zero_point)^2), in whole numbers by an inverse root of Newton's method.
 *
 * x and y are rows with dense columns, any strides along five more axes. An element is read twice, with a product of
 * 32 bits, one of 64 and a shift: instructions bound it.
 */
#include "fixed_l2_norm.h"

#include "fractions.h"
#include "loops.h"

/* 1 / sqrt(x) of 2 <= x < 2^29 with 31 bits behind the point, times 2^-shift. */
static inline int32_t inverse_root(int32_t x, int *shift) {
    int pairs = 13; /* of bits, by which x is shifted to 28 or 29 of them */
    while (pairs > 0 && x >> (29 - 2 * pairs)) pairs--;
    const int32_t value = x << (2 * pairs) >> 1, half = (value + 1) >> 1;
    int32_t root = 1 << 28; /* with 28 bits behind the point */
    for (int i = 0; i < 5; i++) {
        const int32_t cube = multiply_fractions(multiply_fractions(root, root), root) * 64;
        root = (multiply_fractions(root, 3 << 27) - multiply_fractions(half, cube)) * 8;
    }
    *shift = pairs - 11;
    return multiply_fractions(root, 1518500250); /* by the root of 1/2 */
}

void KERNEL(const struct fixed_l2_norm *k) {
    const int columns = k->extent[LAST], zero = k->zero_point;
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        int32_t sum = 0;
        for (int i = 0; i < columns; i++) sum += (x[i] - zero) * (x[i] - zero);
        int shift = 0;
        const int32_t scale = sum > 1 ? inverse_root(sum, &shift) : INT32_MAX;
        const int left = shift + 7 > 0 ? shift + 7 : 0, right = left - shift - 7;
        for (int i = 0; i < columns; i++) {
            const int32_t value = divide_rounding(multiply_fractions((x[i] - zero) * (1 << left), scale), right);
            y[i] = (Y_T)(value < -128 ? -128 : value > 127 ? 127 : value);
        }
    } while (next_row(index, k->extent));
}
