/* y = FUNCTION(x) of whole numbers: a GELU by a polynomial, or a clipped ramp.
 *
 * x and y have any strides along six axes. An element is a load, some comparisons, at most two products of 64 bits and
 * a store: instructions bound it.
 */
#include "integer_function.h"

#include "loops.h"

/* Modulo 2^64: what leaves an int32 is outside of the operators' definition, and shall not be undefined here. */
static inline int64_t times(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* x * ((b + sign(x) * (b - (min(|x|, -a) + a)^2)) >> 1) */
static inline int64_t polynomial_gelu(int64_t x, int64_t a, int64_t b, int64_t c) {
    (void)c;
    const int64_t size = x < 0 ? -x : x, q = (size < -a ? size : -a) + a, half = b - q * q;
    return times(x, (b + (x > 0 ? half : x < 0 ? -half : 0)) >> 1);
}

/* x * clip(x + a, 0, b) * c */
static inline int64_t clipped_ramp(int64_t x, int64_t a, int64_t b, int64_t c) {
    const int64_t ramp = x + a < 0 ? 0 : x + a > b ? b : x + a;
    return times(x, ramp * c);
}

void KERNEL(const struct integer_function *k) {
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) y[i * y_step] = (Y_T)FUNCTION(x[i * x_step], k->a, k->b, k->c);
    } while (next_row(index, k->extent));
}
