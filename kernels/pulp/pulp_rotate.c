/* y = clip((x * cosine)' + (turned(x) * sine)'), rotary position embeddings of rows of bytes: both products are
 * requantised, and so is their sum; turned(x) is the other element of a pair, by a table with its sign.
 *
 * x, cosine, sine and y are rows, any strides along six axes. The loop takes one pair: 6 loads, 4 products of 6 to 9
 * instructions each, 2 sums of 5 to 11, and 2 stores. Instructions bound it.
 *
 * COSINE_NARROW and SINE_NARROW: the requantisation of that product is (acc*mul + add) >> shift in 32 bits.
 * COSINE_CLIPPED and SINE_CLIPPED: its accumulator is limited first. PRODUCTS_WHOLE: both are of the range of int8.
 * CLIP_WHOLE: the result is of the range of Y_T. */
#include "pulp_rotate.h"

#include "pulp_rows.h"
#include "xpulp.h"

static inline int32_t scaled(const struct pulp_rotate_product *p, int is_narrow, int is_clipped, int32_t a, int32_t b) {
    int32_t acc = (a - p->a_zero_point) * (b - p->b_zero_point);
    if (is_clipped) acc = xp_clip(acc, p->limit);
    const int32_t value = is_narrow
                              ? xp_mac(p->add, acc, p->mul) >> p->shift
                              : xp_add_shift(xp_mulh((int32_t)((uint32_t)acc << p->left), p->mul), p->add, p->shift);
    return PRODUCTS_WHOLE ? xp_clip(value, 127) : xp_max(p->low, xp_min(p->high, value));
}

static inline Y_T joined(const struct pulp_rotate_sum *s, int32_t a, int32_t b) {
    int32_t sum = s->add;
    if (SUM_HALVES) sum += xp_mac(xp_mac(s->add_low, a, s->a_low), b, s->b_low) >> 16;
    sum = xp_mac(xp_mac(sum, a, s->a_mul), b, s->b_mul) >> s->shift;
    if (CLIP_WHOLE) return (Y_T)((Y_T)-1 < 0 ? xp_clip(sum, 127) : xp_clipu(sum, 255));
    return (Y_T)xp_max(s->low, xp_min(s->high, sum));
}

/* Both elements of a pair are read before either is written: y may be x. */
void KERNEL(const struct pulp_rotate *k) {
    const int half = k->extent[LAST] / 2, apart = k->is_interleaved ? 1 : half, next = k->is_interleaved ? 2 : 1;
    const int x_step = k->x_step[LAST], c_step = k->cosine_step[LAST], s_step = k->sine_step[LAST],
              y_step = k->y_step[LAST];
    const TABLE_T *const table = (const TABLE_T *)k->table - k->smallest;
    /* Copied: what lies in memory would be read again after every store to y. */
    const struct pulp_rotate_product by_cosine = k->by_cosine, by_sine = k->by_sine;
    const struct pulp_rotate_sum sum = k->sum;
    const X_T *x_row = k->x;
    const COSINE_T *cosine_row = k->cosine;
    const SINE_T *sine_row = k->sine;
    Y_T *y_row = k->y;
    int index[AXES] = {0}, axis;
    do {
        const X_T *x = x_row;
        const COSINE_T *cosine = cosine_row;
        const SINE_T *sine = sine_row;
        Y_T *y = y_row;
        for (int i = half; i > 0; i--) {
            const X_T first = x[0], second = x[apart * x_step];
            const int32_t a = scaled(&by_cosine, COSINE_NARROW, COSINE_CLIPPED, first, cosine[0]);
            const int32_t b = scaled(&by_cosine, COSINE_NARROW, COSINE_CLIPPED, second, cosine[apart * c_step]);
            const int32_t c = scaled(&by_sine, SINE_NARROW, SINE_CLIPPED, table[second], sine[0]);
            const int32_t d = scaled(&by_sine, SINE_NARROW, SINE_CLIPPED, table[256 + first], sine[apart * s_step]);
            y[0] = joined(&sum, a, c), y[apart * y_step] = joined(&sum, b, d);
            x += next * x_step, cosine += next * c_step, sine += next * s_step, y += next * y_step;
        }
        axis = LAST - 1;
        XP_UNKNOWN(axis);
        for (; axis >= 0; axis--) {
            if (k->extent[axis] == 1) continue;
            const int is_last = ++index[axis] == k->extent[axis], steps = is_last ? 1 - k->extent[axis] : 1;
            x_row += steps * k->x_step[axis], cosine_row += steps * k->cosine_step[axis];
            sine_row += steps * k->sine_step[axis], y_row += steps * k->y_step[axis];
            if (!is_last) break;
            index[axis] = 0;
        }
    } while (axis >= 0);
}
