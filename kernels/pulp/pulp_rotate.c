/* COSINE_NARROW and SINE_NARROW: the requantisation of that product is (acc*mul + add) >> shift in 32 bits. */
#include "pulp_rotate.h"

#include "pulp_rows.h"
#include "xpulp.h"

#ifdef COSINE_NARROW
enum { IS_COSINE_NARROW = 1 };
#else
enum { IS_COSINE_NARROW = 0 };
#endif
#ifdef SINE_NARROW
enum { IS_SINE_NARROW = 1 };
#else
enum { IS_SINE_NARROW = 0 };
#endif

static inline int32_t scaled(const struct pulp_rotate_product *p, int is_narrow, int32_t a, int32_t b) {
    const int32_t acc = xp_clip((a - p->a_zero_point) * (b - p->b_zero_point), p->limit);
    const int32_t value = is_narrow
                              ? xp_mac(p->add, acc, p->mul) >> p->shift
                              : xp_add_shift(xp_mulh((int32_t)((uint32_t)acc << p->left), p->mul), p->add, p->shift);
    return xp_max(p->low, xp_min(p->high, value));
}

static inline Y_T joined(const struct pulp_rotate_sum *s, int32_t a, int32_t b) {
    int32_t sum = s->add;
#ifdef SUM_HALVES
    sum += xp_mac(xp_mac(s->add_low, a, s->a_low), b, s->b_low) >> 16;
#endif
    sum = xp_mac(xp_mac(sum, a, s->a_mul), b, s->b_mul) >> s->shift;
    return (Y_T)xp_max(s->low, xp_min(s->high, sum));
}

/* Where the rows of all operands begin, in elements. */
struct place {
    int x, cosine, sine, y;
};

static inline void step(const struct pulp_rotate *k, struct place *at, int axis, int steps) {
    at->x += steps * k->x_step[axis], at->cosine += steps * k->cosine_step[axis];
    at->sine += steps * k->sine_step[axis], at->y += steps * k->y_step[axis];
}

/* Both elements of a pair are read before either is written: y may be x. */
OUT_OF_LINE void turn_row(const struct pulp_rotate *k, struct place at) {
    const int half = k->extent[LAST] / 2, apart = k->is_interleaved ? 1 : half, next = k->is_interleaved ? 2 : 1;
    const int x_step = k->x_step[LAST], c_step = k->cosine_step[LAST], s_step = k->sine_step[LAST],
              y_step = k->y_step[LAST];
    const X_T *x = (const X_T *)k->x + at.x;
    const COSINE_T *cosine = (const COSINE_T *)k->cosine + at.cosine;
    const SINE_T *sine = (const SINE_T *)k->sine + at.sine;
    const TABLE_T *const table = (const TABLE_T *)k->table - k->smallest;
    Y_T *y = (Y_T *)k->y + at.y;
    /* Copied: what lies in memory would be read again after every store to y. */
    const struct pulp_rotate_product by_cosine = k->by_cosine, by_sine = k->by_sine;
    const struct pulp_rotate_sum sum = k->sum;
    for (int i = half; i > 0; i--) {
        const X_T first = x[0], second = x[apart * x_step];
        const int32_t a = scaled(&by_cosine, IS_COSINE_NARROW, first, cosine[0]);
        const int32_t b = scaled(&by_cosine, IS_COSINE_NARROW, second, cosine[apart * c_step]);
        const int32_t c = scaled(&by_sine, IS_SINE_NARROW, table[second], sine[0]);
        const int32_t d = scaled(&by_sine, IS_SINE_NARROW, table[256 + first], sine[apart * s_step]);
        y[0] = joined(&sum, a, c), y[apart * y_step] = joined(&sum, b, d);
        x += next * x_step, cosine += next * c_step, sine += next * s_step, y += next * y_step;
    }
}

void KERNEL(const struct pulp_rotate *k) {
    struct place at = {0, 0, 0, 0};
    int index[AXES] = {0}, axis;
    do {
        turn_row(k, at);
        for (axis = LAST - 1; axis >= 0; axis--) {
            if (k->extent[axis] == 1) continue;
            const int is_last = ++index[axis] == k->extent[axis];
            step(k, &at, axis, is_last ? 1 - k->extent[axis] : 1);
            if (!is_last) break;
            index[axis] = 0;
        }
    } while (axis >= 0);
}
