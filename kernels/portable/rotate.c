/* y = x * cosine + turned(x) * sine, rotary position embeddings: turned(x) is the other element of a pair, by a table
 * with its sign.
 *
 * All operands have any strides along six axes, the last one the row. A pair is 6 loads, 4 products, of integers with a
 * requantisation each, 2 sums and 2 stores: instructions bound it.
 */
#include "rotate.h"

#include "loops.h"

#ifdef X_IS_FLOAT

static inline Y_T combined(const struct rotate *k, X_T x, X_T turned, COSINE_T cosine, SINE_T sine) {
    (void)k;
    return x * cosine + turned * sine;
}

#define FROM_SECOND(k, value) (-(value))
#define FROM_FIRST(k, value) (value)

#else

static inline int32_t stepped(int64_t sum, int shift, int32_t low, int32_t high, int even) {
    int64_t wide = sum >> shift;
    if (even >= 0) wide -= (wide * ((int64_t)1 << shift) == sum) & (wide - even) & 1;
    wide = wide < low ? low : wide;
    return (int32_t)(wide > high ? high : wide);
}

static inline int32_t scaled(const struct rotate_product *p, int32_t a, int32_t b) {
    const int64_t product = (int64_t)((a - p->a_zero_point) * (b - p->b_zero_point)) * p->mul;
    return stepped(product + p->add, p->shift, p->low, p->high, p->even);
}

static inline Y_T combined(const struct rotate *k, X_T x, TABLE_T turned, COSINE_T cosine, SINE_T sine) {
    const struct rotate_sum *const s = &k->sum;
    const int64_t sum = scaled(&k->by_cosine, x, cosine) * s->mul_a + scaled(&k->by_sine, turned, sine) * s->mul_b;
    return (Y_T)stepped(sum + s->add, s->shift, s->low, s->high, s->even);
}

#define FROM_SECOND(k, value) (((const TABLE_T *)(k)->table)[(value) - (k)->smallest])
#define FROM_FIRST(k, value) (((const TABLE_T *)(k)->table)[256 + (value) - (k)->smallest])

#endif

/* Both elements of a pair are read before either is written: y may be x. */
void KERNEL(const struct rotate *k) {
    const int half = k->extent[LAST] / 2, apart = k->is_interleaved ? 1 : half, next = k->is_interleaved ? 2 : 1;
    const int x_step = k->x_step[LAST], c_step = k->cosine_step[LAST], s_step = k->sine_step[LAST],
              y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        const COSINE_T *const cosine = (const COSINE_T *)k->cosine + row_offset(index, k->cosine_step);
        const SINE_T *const sine = (const SINE_T *)k->sine + row_offset(index, k->sine_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int pair = 0; pair < half; pair++) {
            const int i = pair * next, j = i + apart;
            const X_T first = x[i * x_step], second = x[j * x_step];
            y[i * y_step] = combined(k, first, FROM_SECOND(k, second), cosine[i * c_step], sine[i * s_step]);
            y[j * y_step] = combined(k, second, FROM_FIRST(k, first), cosine[j * c_step], sine[j * s_step]);
        }
    } while (next_row(index, k->extent));
}
