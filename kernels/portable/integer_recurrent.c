/* Macros: LSTM, GRU or RNN. Sums of a gate get 16 fractional bits, the cells of an LSTM have as many; functions and
 * states have 15. */
#include "integer_recurrent.h"

enum { FRACTION = 16, UNIT = 15, REACH = 8 << FRACTION, STEPS = 1024, NEXT = STEPS + 1, BETWEEN = 10 };
#if defined(LSTM)
enum { GATES = 4, SUMS = 4 };
#elif defined(GRU)
enum { GATES = 3, SUMS = 4 };
#else
enum { GATES = 1, SUMS = 1 };
#endif

/* What a team of cores has in a form of its own: HAS_TEAM. */
#ifndef HAS_TEAM
#define CORE() 0
#define MEET(k) (void)0
#define STATE int16_t
#define BEGIN_STATES(k, begin, end) (void)0
#define UNROLL

static inline int32_t limited(int32_t x, int32_t most) {
    return x < -most - 1 ? -most - 1 : x > most ? most : x;
}

/* (a + b) / 2^bits, rounded. */
static inline int32_t rounded_sum(int32_t a, int32_t b, int bits) {
    return (a + b + (1 << (bits - 1))) >> bits;
}

#define rounded(x, bits) rounded_sum(x, 0, bits)

/* The line between two values of a table, times 1 << BETWEEN. */
static inline int32_t between(const int16_t *table, int32_t at, int32_t rest) {
    return table[at] * ((1 << BETWEEN) - rest) + table[at + 1] * rest;
}

/* The states behind a step in the form that the next one reads: here they are what the layer leaves. */
static inline STATE *states_at(const struct integer_recurrent *k, int step, int n) {
    const int last = step - 1, t = k->reverse ? k->steps - 1 - last : last;
    return step ? k->y + t * k->y_step + n * k->y_batch : (STATE *)k->h + n * k->h_batch;
}

static inline void keep_state(STATE *states, int u, int32_t y) {
    (void)states, (void)u, (void)y;
}
#endif

/* The function at a: a straight line between two values of its table, whose middle is given. */
static inline int32_t looked_up(const int16_t *table, int32_t a) {
    const int32_t at = limited(a, REACH - 1);
    return rounded(between(table, at >> BETWEEN, at & ((1 << BETWEEN) - 1)), BETWEEN);
}

static inline int32_t upper(int32_t a, int32_t b) {
    return (int32_t)((int64_t)a * b >> 32);
}

/* The function of gates, whose table reaches twice as far. */
static inline int32_t gate(const int16_t *table, int32_t a) {
    return looked_up(table, a >> 1);
}

/* The rounded product of a value with 15 fractional bits, not below 0, and any other. */
static inline int32_t scaled(int32_t factor, int32_t x) {
    return factor * (x >> UNIT) + rounded(factor * (x & ((1 << UNIT) - 1)), UNIT);
}

/* The sums of a unit: p of its inputs, acc of its state. A GRU's product of the candidate stays apart. */
static inline void add(int32_t *sums, const int32_t *p, int next, int shift_p, int shift, const int32_t *acc,
                       const int32_t *factors) {
    UNROLL
    for (int g = 0; g < GATES; g++, p += next, factors += 2) {
        const int32_t own = upper(*p * (1 << shift_p), factors[0]), product = upper(acc[g], factors[1]);
#ifdef GRU
        if (g == 2) {
            sums[2] = rounded_sum(own, 0, shift);
            sums[3] = rounded_sum(product, 0, shift);
            break;
        }
#endif
        sums[g] = rounded_sum(own, product, shift);
    }
}

#ifndef HAS_TEAM
/* The sums of all gates of a step. */
static void products(const struct integer_recurrent *k, const int32_t *p, const STATE *h, int begin, int end) {
    const int units = k->units;
    for (int u = begin; u < end; u++) {
        int32_t acc[GATES] = {0};
        for (int g = 0; g < GATES; g++) {
            const int8_t *const r = k->r + (g * units + u) * units;
            for (int j = 0; j < units; j++) acc[g] += (int32_t)r[j] * h[j];
        }
        add(k->sums + u * SUMS, p + u, k->p_gate, k->shift_p, k->shift, acc, k->factors + u * GATES * 2);
    }
}
#else
static void products(const struct integer_recurrent *k, const int32_t *p, const STATE *h, int begin, int end);
#endif

/* A unit behind a step from its sums. */
#if defined(LSTM)
static inline int32_t unit(const int16_t *f, const int16_t *last, const int32_t *a, int32_t c, int32_t *cell) {
    const int32_t kept = scaled(gate(f, a[2]), c);
    const int32_t more = rounded(gate(f, a[0]) * looked_up(f + NEXT, a[3]), 2 * UNIT - FRACTION);
    const int32_t now = *cell = limited(kept + more, (1 << 30) - 1);
    return rounded(gate(f, a[1]) * looked_up(last, now), UNIT);
}
#elif defined(GRU)
static inline int32_t unit(const int16_t *f, const int32_t *a, int32_t before, int32_t bias) {
    const int32_t turned = scaled(gate(f, a[1]), a[3] + bias);
    const int32_t update = gate(f, a[0]), candidate = looked_up(f + NEXT, a[2] + turned);
    return rounded(((1 << UNIT) - update) * candidate + update * before, UNIT);
}
#endif

/* Step i of sample n. */
static void step(const struct integer_recurrent *k, int i, int n, int begin, int end) {
    const int t = k->reverse ? k->steps - 1 - i : i, back = k->reverse ? k->y_step : -k->y_step;
    const int16_t *const f = k->tables + STEPS / 2;
    const int32_t *a = k->sums + begin * SUMS;
    int16_t *const y = k->y + t * k->y_step + n * k->y_batch;
    STATE *const next = states_at(k, i + 1, n);
    products(k, k->p + t * k->p_step + n * k->p_batch, states_at(k, i, n), begin, end);
#if defined(LSTM)
    int32_t *const cells = k->cells + n * k->cells_batch;
    const int32_t *const c = i ? cells : k->c + n * k->c_batch;
    const int16_t *const last = f + (k->functions - 1) * NEXT;
#elif defined(GRU)
    const int16_t *const before = i ? y + back : k->h + n * k->h_batch;
    const int32_t *const bias = k->b;
#endif
    (void)back;
    for (int u = begin; u < end; u++, a += SUMS) {
#if defined(LSTM)
        const int32_t now = unit(f, last, a, c[u], cells + u);
#elif defined(GRU)
        const int32_t now = unit(f, a, before[u], bias[u]);
#else
        const int32_t now = looked_up(f, a[0]);
#endif
        y[u] = (int16_t)now;
        keep_state(next, u, now);
    }
}

void KERNEL(const struct integer_recurrent *k) {
    const int share = (k->units + k->cores - 1) / k->cores, last = (CORE() + 1) * share;
    const int end = last < k->units ? last : k->units, begin = last - share < end ? last - share : end;
    BEGIN_STATES(k, begin, end);
    for (int i = 0; i < k->steps; i++) {
        MEET(k);
        for (int n = 0; n < k->batch; n++) step(k, i, n, begin, end);
    }
}
