/* Macros: LSTM, GRU or RNN. Sums of a gate get 16 fractional bits, the cells of an LSTM have as many; functions and
 * states have 15. */
#include "integer_recurrent.h"

/* Of a team that divides the units, which core calls, and where its cores wait for each other. */
#ifndef CORE
#define CORE() 0
#define MEET(k) (void)0
#endif

enum { REACH = 8 << 16, ENTRIES = 2049, BETWEEN = 9, UNIT = 15, MOST_CELL = 1 << 30 };
#if defined(LSTM)
enum { GATES = 4 };
#elif defined(GRU)
enum { GATES = 3 };
#else
enum { GATES = 1 };
#endif

static inline int32_t limited(int32_t x, int32_t low, int32_t high) {
    return x < low ? low : x > high ? high : x;
}

/* The function at a: a straight line between two entries of its table. */
static int32_t looked_up(const int16_t *table, int32_t a) {
    const int32_t place = limited(a, -REACH, REACH - 1) + REACH, rest = place & ((1 << BETWEEN) - 1);
    const int16_t *const entry = table + (place >> BETWEEN);
    return entry[0] + (((entry[1] - entry[0]) * rest + (1 << (BETWEEN - 1))) >> BETWEEN);
}

static inline int32_t rounded(int32_t x, int bits) {
    return (x + (1 << (bits - 1))) >> bits;
}

static inline int32_t wide_rounded(int64_t x, int bits) {
    return (int32_t)((x + ((int64_t)1 << (bits - 1))) >> bits);
}

/* Sums of the products of the state and the weights of a unit, `next` elements apart from gate to gate. */
#ifndef HAS_MULTIPLY
static inline void multiply(int32_t *acc, const int16_t *h, const int16_t *r, int units, int next) {
    for (int g = 0; g < GATES; g++) acc[g] = 0;
    for (int j = 0; j < units; j++) {
        for (int g = 0; g < GATES; g++) acc[g] += (int32_t)r[g * next + j] * h[j];
    }
}
#endif

/* Unit u behind a step: p of its inputs, h and c before it. */
static int32_t unit(const struct integer_recurrent *k, const int32_t *p, const int16_t *h, const int32_t *c,
                    int32_t *cells, int u) {
    const int units = k->units, shift = k->shift;
    const int16_t *const f = k->tables;
    int32_t acc[GATES];
    int64_t own[GATES], product[GATES];
    multiply(acc, h, k->r + u * units, units, units * units);
    for (int g = 0; g < GATES; g++) {
        own[g] = (int64_t)p[g * k->p_gate + u] * k->mul_p[g * units + u];
        product[g] = (int64_t)acc[g] * k->mul_r[g * units + u];
    }
    (void)c;
    (void)cells;
#if defined(LSTM)
    int32_t a[GATES];
    for (int g = 0; g < GATES; g++) a[g] = wide_rounded(own[g] + product[g], shift);
    const int32_t input = looked_up(f, a[0]), output = looked_up(f, a[1]), forget = looked_up(f, a[2]);
    const int32_t kept = wide_rounded((int64_t)forget * c[u], UNIT);
    const int32_t more = rounded(input * looked_up(f + ENTRIES, a[3]), 2 * UNIT - 16);
    cells[u] = limited(kept + more, -MOST_CELL, MOST_CELL);
    return rounded(output * looked_up(f + 2 * ENTRIES, cells[u]), UNIT);
#elif defined(GRU)
    const int32_t update = looked_up(f, wide_rounded(own[0] + product[0], shift));
    const int32_t reset = looked_up(f, wide_rounded(own[1] + product[1], shift));
    const int32_t turned = wide_rounded((int64_t)reset * (wide_rounded(product[2], shift) + k->b[u]), UNIT);
    const int32_t candidate = looked_up(f + ENTRIES, wide_rounded(own[2], shift) + turned);
    return rounded(((1 << UNIT) - update) * candidate + update * h[u], UNIT);
#else
    return looked_up(f, wide_rounded(own[0] + product[0], shift));
#endif
}

void KERNEL(const struct integer_recurrent *k) {
    const int share = (k->units + k->cores - 1) / k->cores, last = (CORE() + 1) * share;
    const int end = last < k->units ? last : k->units, begin = last - share < end ? last - share : end;
    const int16_t *before = 0; /* states of the step before, none before the first */
    for (int i = 0; i < k->steps; i++) {
        const int t = k->reverse ? k->steps - 1 - i : i;
        int16_t *const y = k->y + t * k->y_step;
        for (int n = 0; n < k->batch; n++) {
            const int32_t *const p = k->p + t * k->p_step + n * k->p_batch;
            const int16_t *const h = before ? before + n * k->y_batch : k->h + n * k->h_batch;
#ifdef LSTM
            int32_t *const cells = k->cells + n * k->cells_batch;
            const int32_t *const c = before ? cells : k->c + n * k->c_batch;
#else
            int32_t *const cells = 0;
            const int32_t *const c = 0;
#endif
            for (int u = begin; u < end; u++) y[n * k->y_batch + u] = (int16_t)unit(k, p, h, c, cells, u);
            MEET(k);
        }
        before = y;
    }
}
