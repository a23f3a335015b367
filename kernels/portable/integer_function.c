/* y = FUNCTION(x) of whole numbers: a GELU by a polynomial, a clipped ramp, or a logistic function or a hyperbolic
 * tangent of 16 bits by exponentials (Taylor's series) and a quotient (Newton's method).
 *
 * x and y have any strides along six axes. An element is a load, some comparisons, at most two products of 64 bits or
 * 25 of 32 bits, and a store: instructions bound it.
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

/* The product of two fractions of 15 bits, and a quotient that is rounded half away from zero. */
static inline int32_t product(int32_t a, int32_t b) {
    return (a * b + (1 << 14)) >> 15;
}

static inline int32_t divide_rounding(int32_t x, int bits) {
    return (x + (1 << bits >> 1) - (x < 0)) >> bits;
}

/* exp(x) with 15 bits behind the point, of x <= 0 with whole bits in front of it; x is 16 bits wide. */
static inline int32_t exponential(int32_t x, int whole) {
    static const int16_t powers[] = {25520, 19875, 12055, 4435, 600, 11, 0}; /* exp(-1/4), exp(-1/2), ... exp(-16) */
    const int32_t quarter = 1 << (13 - whole), rest = (x & (quarter - 1)) - quarter;
    const int32_t near = rest * (1 << whole) + (1 << 12), square = product(near, near);
    const int32_t fourth = divide_rounding(product(square, square), 2) + product(square, near);
    int32_t y = 28918 + product(near + divide_rounding(product(fourth, 10923) + square, 1), 28918);
    if (x == 0) return INT16_MAX;
    if (whole > 5 && x < -(1 << (20 - whole))) return 0;
    if (y > INT16_MAX) y = INT16_MAX;
    for (int i = 0; i < whole + 2 && i < 7; i++) {
        if ((rest - x) & (quarter << i)) y = product(y, powers[i]);
    }
    return y;
}

/* Half of 1 / (1 + x) with 13 bits behind the point. */
static inline int32_t invert_sum(int32_t x) {
    const int32_t half = (x + (1 << 15)) >> 1;
    int32_t y = 23130 + product(half, -15420);
    for (int i = 0; i < 3; i++) y += product(y, (1 << 13) - product(half, y)) * 4;
    return y;
}

/* 1 / (1 + exp(-x)) and tanh(x) with 15 bits behind the point, of x with a bits in front of it. */
static inline int64_t logistic(int32_t x, int32_t a, int32_t b, int32_t c) {
    (void)b, (void)c;
    const int32_t y = invert_sum(exponential(x < 0 ? x : -x, a)) * 2, positive = y > INT16_MAX ? INT16_MAX : y;
    return x == 0 ? 1 << 14 : x > 0 ? positive : INT16_MAX - positive;
}

static inline int64_t tangent(int32_t x, int32_t a, int32_t b, int32_t c) {
    (void)b, (void)c;
    const int32_t y = (invert_sum(exponential(x < 0 ? x : -x, a + 1)) - (1 << 13)) * 4;
    const int32_t positive = y > INT16_MAX ? INT16_MAX : y < INT16_MIN ? INT16_MIN : y;
    return x == 0 ? 0 : x > 0 ? positive : -positive;
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
