#include "pulp_quantize.h"

#include <math.h>

#include "pulp_rows.h"
#include "xpulp.h"

/* The cores share one divider: a quotient takes 100 cycles. The product with the inverse of the scale differs from it
 * by less than 2^-22 of itself, hence by less than 2^-13 where it is not beyond the limits; the nearest whole number is
 * the same unless the product lies that close to the middle between two. */
#define NEAR_MIDDLE (0.5f - 0x1p-13f)

/* What all elements share; limits are those of steps, before the zero point is added. */
struct steps {
    float scale, inverse, low, high;
    int32_t zero_point;
};

/* Limits before rounding: they are whole numbers. The larger of NaN and a number is the number. */
static inline float limited(float steps, const struct steps *s) {
#if defined(XPULP_INSN) && defined(__riscv_flen)
    __asm__("fmax.s %0, %0, %1" : "+f"(steps) : "f"(s->low));
    __asm__("fmin.s %0, %0, %1" : "+f"(steps) : "f"(s->high));
    return steps;
#else
    return steps > s->high ? s->high : steps >= s->low ? steps : s->low;
#endif
}

static inline int32_t nearest(float steps) {
#if defined(XPULP_INSN) && defined(__riscv_flen)
    int32_t rounded;
    __asm__("fcvt.w.s %0, %1, rne" : "=r"(rounded) : "f"(steps));
    return rounded;
#else
    return (int32_t)rintf(steps);
#endif
}

OUT_OF_LINE void divide(const struct steps *s, const X_T *x, int x_step, Y_T *y, int y_step, int count) {
    for (; count > 0; count--, x += x_step, y += y_step) *y = (Y_T)(nearest(limited(*x / s->scale, s)) + s->zero_point);
}

static inline float larger(float a, float b) {
    return a > b ? a : b;
}

/* Four at a time, so that none waits for the one before, then what is left. */
static inline __attribute__((always_inline)) void by_4(const struct steps *given, const X_T *x, int x_step, Y_T *y,
                                                       int y_step, int count) {
    const struct steps s = *given;
    for (; count >= 4; count -= 4, x += 4 * x_step, y += 4 * y_step) {
        const float a = limited(x[0] * s.inverse, &s), b = limited(x[x_step] * s.inverse, &s);
        const float c = limited(x[2 * x_step] * s.inverse, &s), d = limited(x[3 * x_step] * s.inverse, &s);
        const int32_t e = nearest(a), f = nearest(b), g = nearest(c), h = nearest(d);
        y[0] = (Y_T)(e + s.zero_point), y[y_step] = (Y_T)(f + s.zero_point);
        y[2 * y_step] = (Y_T)(g + s.zero_point), y[3 * y_step] = (Y_T)(h + s.zero_point);
        const float i = fabsf(a - (float)e), j = fabsf(b - (float)f), k = fabsf(c - (float)g), l = fabsf(d - (float)h);
        if (larger(larger(i, j), larger(k, l)) >= NEAR_MIDDLE) divide(given, x, x_step, y, y_step, 4);
    }
    for (; count > 0; count--, x += x_step, y += y_step) {
        const float a = limited(x[0] * s.inverse, &s);
        const int32_t e = nearest(a);
        y[0] = (Y_T)(e + s.zero_point);
        if (fabsf(a - (float)e) >= NEAR_MIDDLE) divide(given, x, x_step, y, y_step, 1);
    }
}

OUT_OF_LINE void dense_row(const struct steps *s, const X_T *x, Y_T *y, int count) {
    by_4(s, x, 1, y, 1, count);
}

OUT_OF_LINE void strided_row(const struct steps *s, const X_T *x, int x_step, Y_T *y, int y_step, int count) {
    by_4(s, x, x_step, y, y_step, count);
}

/* Whether the inverse of a scale is a normal number, and the bound on the product's error holds. */
static inline int has_inverse(float scale) {
    return fabsf(scale) > 0x1p-100f && fabsf(scale) < 0x1p100f;
}

void KERNEL(const struct pulp_quantize *k) {
    const int32_t zero = *k->zero_point;
    const struct steps s = {*k->scale, 1.0f / *k->scale, (float)(k->low - zero), (float)(k->high - zero), zero};
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0}, x_at = 0, y_at = 0;
    do {
        const X_T *const x = (const X_T *)k->x + x_at;
        Y_T *const y = (Y_T *)k->y + y_at;
        if (!has_inverse(s.scale))
            divide(&s, x, x_step, y, y_step, k->extent[LAST]);
        else if (x_step == 1 && y_step == 1)
            dense_row(&s, x, y, k->extent[LAST]);
        else
            strided_row(&s, x, x_step, y, y_step, k->extent[LAST]);
    } while (next_rows(index, k->extent, k->x_step, &x_at, k->y_step, &y_at, 0, 0));
}
