/* y = clip(round(x / scale) + zero_point, low, high), of floats, ties to even.
 *
 * x and y have any strides along six axes, of which the longest is the row. An element takes a load, a step, 4
 * instructions of the unit for floats, 2 to limit it and to add, and a store: 9. Two cores share such a unit, which
 * bounds it at 8; a scale that has no inverse takes a division of 100 cycles, which all cores share.
 */
#include "pulp_quantize.h"

#include <math.h>

#include "pulp_rows.h"
#include "xpulp.h"

/* The cores share one divider: a quotient takes 100 cycles. The product with the inverse of the scale in two floats,
 * rounded once, is rounded to the same whole number as the quotient that a division gives.
 *
 * Proof. Where inverse = (1 + d) / scale, |d| is at most 2^-24, and rest is what inverse lacks, -d / scale, up to 2^-24
 * of itself. So x * inverse + x * rest, whose second product is rounded, is x / scale up to |d| * 2^-23 of itself
 * before it is rounded once. Both that and the quotient are rounded to floats on different sides of a half h, or on it,
 * only if a middle m between h and a neighbouring float is as close to x / scale: |x - m * scale| <= |x| * 2^-47. As
 * whole numbers X, M and S times powers of two, X and S of 24 bits, that is |X * 2^t - M * S| <= 8 with a t from 23 on.
 * M is odd, and next to a multiple of 2^15 where |h| < 2^9. So S is next to a multiple of 2^15, too, by 1 to 8; 0 it
 * cannot be, since M * S = X * 2^t has no solution. For such scales, and for those with rests that are no normal
 * numbers, it is divided. */
/* What all elements share: x is limited to what the first and the last result stand for. As a float that is off by
 * 2^-24 of itself at most, so that its quotient is rounded to that result, too. */
struct steps {
    float scale, inverse, rest, least, most;
    int32_t zero_point, low, high;
};

static inline int32_t nearest(float steps) {
    int32_t rounded = 0;
    if (!XPULP_FLOATS) return (int32_t)rintf(steps);
    XP_INSN("fcvt.w.s %0, %1, rne" : "=r"(rounded) : "f"(steps));
    return rounded;
}

/* The larger of NaN and a number is the number. */
static inline float limited(float x, const struct steps *s) {
    if (!XPULP_FLOATS) return x > s->most ? s->most : x >= s->least ? x : s->least;
    XP_INSN("fmax.s %0, %0, %1" : "+f"(x) : "f"(s->least));
    XP_INSN("fmin.s %0, %0, %1" : "+f"(x) : "f"(s->most));
    return x;
}

static inline Y_T result(float x, const struct steps *s) {
    const float within = limited(x, s);
    return (Y_T)(nearest(fmaf(within, s->inverse, within * s->rest)) + s->zero_point);
}

OUT_OF_LINE void divide(const struct steps *s, const X_T *x, int x_step, Y_T *y, int y_step, int count) {
    const float low = (float)(s->low - s->zero_point), high = (float)(s->high - s->zero_point);
    for (; count > 0; count--, x += x_step, y += y_step) {
        const float steps = *x / s->scale;
        *y = (Y_T)(nearest(steps > high ? high : steps >= low ? steps : low) + s->zero_point);
    }
}

#define LOAD(x, product, result) "flw " x ", 0(%[x])\nadd %[x], %[x], %[x_step]\n"
#define LIMIT(x, product, result) "fmax.s " x ", " x ", %[least]\n"
#define REST(x, product, result) "fmul.s " product ", " x ", %[rest]\n"
#define SUM(x, product, result) "fmadd.s " x ", " x ", %[inverse], " product "\n"
#define NEAREST(x, product, result) "fcvt.w.s " result ", " x ", rne\n"
#define SHIFT(x, product, result) XP_MIN(result, result, "%[most]") "add " result ", " result ", %[zero]\n"
#define STORE(x, product, result) ".insn r 0x2b, 4, 0, %[y_step], %[y], " result "\n"
#define STORE_WORD                  \
    XP_SHUFFLE("t0", "t1", "pairs") \
    XP_SHUFFLE("t2", "t3", "pairs") XP_PACK("t0", "t2", "t0") ".insn s 0x2b, 2, t0, 4(%[y])\n"
#define FOUR(each) each("fa0", "ft0", "t0") each("fa1", "ft1", "t1") each("fa2", "ft2", "t2") each("fa3", "ft3", "t3")

/* Four at a time, so that none waits for the one before, then what is left. What is above the last result is limited
 * as a whole number: the largest one, as are infinity and what has no number behind an overflow. Bytes that are
 * neighbours are stored as a word: by the byte, cores would wait for each other's banks. */
FOLDED void multiply(const struct steps *given, const X_T *x, int x_step, Y_T *y, int y_step, int count, int is_dense) {
    const struct steps s = *given;
    if (XPULP_FLOATS && count >= 4) {
        XP_BLOCK(BEGIN ".insn i 0x7b, 4, x0, %[n], 2 * 36\n" FOUR(LOAD) FOUR(LIMIT) FOUR(REST) FOUR(SUM) FOUR(NEAREST)
                     FOUR(SHIFT) EITHER("%[dense]", STORE_WORD, FOUR(STORE)) END : [x] "+r"(x),
                 [y] "+r"(y) : [n] "r"(count >> 2), [x_step] "r"(x_step * (int)sizeof *x), [y_step] "ri"(y_step),
                 [dense] "i"(is_dense), [pairs] "r"(0x06020400), [least] "f"(s.least), [rest] "f"(s.rest),
                 [inverse] "f"(s.inverse), [most] "r"(s.high - s.zero_point), [zero] "r"(s.zero_point) : "t0", "t1",
                 "t2", "t3", "fa0", "fa1", "fa2", "fa3", "ft0", "ft1", "ft2", "ft3", "memory");
        count &= 3;
    }
    for (; count > 0; count--, x += x_step, y += y_step) *y = result(*x, &s);
}

OUT_OF_LINE void to_words(const struct steps *s, const X_T *x, int x_step, Y_T *y, int count) {
    multiply(s, x, x_step, y, 1, count, 1);
}

OUT_OF_LINE void to_bytes(const struct steps *s, const X_T *x, int x_step, Y_T *y, int y_step, int count) {
    multiply(s, x, x_step, y, y_step, count, 0);
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
    const float inverse = 1.0f / scale, rest = fmaf(-inverse, scale, 1.0f) / scale;
    const struct steps s = {scale, inverse, rest,   (float)(k->low - zero) * scale, (float)(k->high - zero) * scale,
                            zero,  k->low,  k->high};
    const float least = (float)(zero - k->low), most = (float)(k->high - zero);
    const int is_exact = has_inverse(scale, 1 + (least > most ? least : most));
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0}, x_at = 0, y_at = 0;
    do {
        const X_T *const x = (const X_T *)k->x + x_at;
        Y_T *const y = (Y_T *)k->y + y_at;
        if (!is_exact)
            divide(&s, x, x_step, y, y_step, k->extent[LAST]);
        else if (y_step == 1)
            to_words(&s, x, x_step, y, k->extent[LAST]);
        else
            to_bytes(&s, x, x_step, y, y_step, k->extent[LAST]);
    } while (next_rows(index, k->extent, k->x_step, &x_at, k->y_step, &y_at, 0, 0));
}
