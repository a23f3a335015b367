/* y = clip(round(x / scale) + zero_point, low, high), of floats, ties to even.
 *
 * x and y have any strides along six axes, of which the longest is the row. Four elements take 4 loads, 8 instructions
 * to limit them, 4 multiplications and 8 multiply-adds, 4 conversions, additions and stores: 9 an element. Instructions
 * bound it; a scale that has no inverse takes a division of 100 cycles, which cores share.
 */
#include "pulp_quantize.h"

#include <math.h>

#include "pulp_rows.h"
#include "xpulp.h"

/* The cores share one divider: a quotient takes 100 cycles. The product with the inverse of the scale, corrected by
 * what a multiply-add leaves of x, is rounded to the same whole number as the quotient that a division gives.
 *
 * Proof. Where inverse = (1 + d) / scale and product = x / scale + e, |d| is at most 2^-24 and |e| / |x / scale| little
 * more than 2^-23. The rest x - product * scale = -e * scale is exact, so that the corrected product is x / scale - e *
 * d, rounded once. Both are rounded to floats on different sides of a half h, or on it, only if a middle m between h
 * and a neighbouring float is as close to x / scale: |x - m * scale| <= |x| * 2^-47. As whole numbers X, M and S times
 * powers of two, X and S of 24 bits, that is |X * 2^t - M * S| <= 8 with a t from 23 on. M is odd, and next to a
 * multiple of 2^15 where |h| < 2^9. So S is next to a multiple of 2^15, too, by 1 to 8; 0 it cannot be, since M * S = X
 * * 2^t has no solution. For such scales, and for those with rests that are no normal numbers, it is divided. */
/* What all elements share: x is limited to what the first and the last result stand for. As a float that is off by
 * 2^-24 of itself at most, so that its quotient is rounded to that result, too. */
struct steps {
    float scale, inverse, least, most;
    int32_t zero_point, low, high;
};

/* The larger of NaN and a number is the number. */
static inline float limited(float x, const struct steps *s) {
    if (!XPULP_FLOATS) return x > s->most ? s->most : x >= s->least ? x : s->least;
    XP_INSN("fmax.s %0, %0, %1" : "+f"(x) : "f"(s->least));
    XP_INSN("fmin.s %0, %0, %1" : "+f"(x) : "f"(s->most));
    return x;
}

static inline int32_t nearest(float steps) {
    int32_t rounded = 0;
    if (!XPULP_FLOATS) return (int32_t)rintf(steps);
    XP_INSN("fcvt.w.s %0, %1, rne" : "=r"(rounded) : "f"(steps));
    return rounded;
}

static inline float corrected(float product, float x, const struct steps *s) {
    return fmaf(fmaf(-product, s->scale, x), s->inverse, product);
}

static inline Y_T result(float quotient, const struct steps *s) {
    return (Y_T)(nearest(quotient) + s->zero_point);
}

OUT_OF_LINE void divide(const struct steps *s, const X_T *x, int x_step, Y_T *y, int y_step, int count) {
    const float low = (float)(s->low - s->zero_point), high = (float)(s->high - s->zero_point);
    for (; count > 0; count--, x += x_step, y += y_step) {
        const float steps = *x / s->scale;
        *y = (Y_T)(nearest(steps > high ? high : steps >= low ? steps : low) + s->zero_point);
    }
}

/* Four at a time, so that none waits for the one before, then what is left. */
static inline __attribute__((always_inline)) void by_4(const struct steps *given, const X_T *x, int x_step, Y_T *y,
                                                       int y_step, int count) {
    const struct steps s = *given;
    for (; count >= 4; count -= 4, x += 4 * x_step, y += 4 * y_step) {
        const float a = limited(x[0], &s), b = limited(x[x_step], &s), c = limited(x[2 * x_step], &s),
                    d = limited(x[3 * x_step], &s);
        float e = a * s.inverse, f = b * s.inverse, g = c * s.inverse, h = d * s.inverse;
        e = corrected(e, a, &s), f = corrected(f, b, &s), g = corrected(g, c, &s), h = corrected(h, d, &s);
        y[0] = result(e, &s), y[y_step] = result(f, &s);
        y[2 * y_step] = result(g, &s), y[3 * y_step] = result(h, &s);
    }
    for (; count > 0; count--, x += x_step, y += y_step) {
        const float a = limited(*x, &s);
        *y = result(corrected(a * s.inverse, a, &s), &s);
    }
}

OUT_OF_LINE void dense_row(const struct steps *s, const X_T *x, Y_T *y, int count) {
    by_4(s, x, 1, y, 1, count);
}

OUT_OF_LINE void strided_row(const struct steps *s, const X_T *x, int x_step, Y_T *y, int y_step, int count) {
    by_4(s, x, x_step, y, y_step, count);
}

/* Whether the proof holds for a scale and quotients up to `most`. */
static inline int has_inverse(float scale, float most) {
    union {
        float value;
        uint32_t bits;
    } s = {scale};
    const uint32_t last = s.bits & 0x7fff;
    return scale > 0x1p-70f && scale < 0x1p70f && most < 0x1p9f && (last == 0 || ((last + 8) & 0x7fff) > 16);
}

/* Exchange an axis with the last one. */
static inline void exchange(int values[AXES], int axis) {
    const int last = values[LAST];
    values[LAST] = values[axis], values[axis] = last;
}

/* The axis with most elements: an image's channels are few, and its pixels lie equally far apart, too. */
static inline int longest(const struct pulp_quantize *k) {
    int found = LAST, axis = LAST - 1;
    XP_UNKNOWN(axis);
    for (; axis >= 0; axis--) found = k->extent[axis] > k->extent[found] ? axis : found;
    return found;
}

OUT_OF_LINE void in_rows(const struct pulp_quantize *k);

/* The same elements in rows along another axis. */
OUT_OF_LINE void along(const struct pulp_quantize *given, int axis) {
    struct pulp_quantize k = *given;
    exchange(k.extent, axis), exchange(k.x_step, axis), exchange(k.y_step, axis);
    in_rows(&k);
}

void KERNEL(const struct pulp_quantize *k) {
    const int axis = longest(k);
    if (axis == LAST)
        in_rows(k);
    else
        along(k, axis);
}

OUT_OF_LINE void in_rows(const struct pulp_quantize *k) {
    const int32_t zero = *k->zero_point;
    const float scale = *k->scale;
    const struct steps s = {scale,  1.0f / scale, (float)(k->low - zero) * scale, (float)(k->high - zero) * scale, zero,
                            k->low, k->high};
    const float least = (float)(zero - k->low), most = (float)(k->high - zero);
    const int is_exact = has_inverse(scale, 1 + (least > most ? least : most));
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0}, x_at = 0, y_at = 0;
    do {
        const X_T *const x = (const X_T *)k->x + x_at;
        Y_T *const y = (Y_T *)k->y + y_at;
        if (!is_exact)
            divide(&s, x, x_step, y, y_step, k->extent[LAST]);
        else if (x_step == 1 && y_step == 1)
            dense_row(&s, x, y, k->extent[LAST]);
        else
            strided_row(&s, x, x_step, y, y_step, k->extent[LAST]);
    } while (next_rows(index, k->extent, k->x_step, &x_at, k->y_step, &y_at, 0, 0));
}
