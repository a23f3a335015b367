/* A recurrent layer of whole numbers, LSTM, GRU or RNN, for sources that have `limited`, `rounded_sum`, `rounded`,
 * `between`, the states that steps hand on, and what a team of cores needs to meet. Sums of a gate get 16 fractional
 * bits, the cells of an LSTM have as many; functions and states have 15. */
#ifndef DEEPLOY_INTEGER_RECURRENT_LAYER_H
#define DEEPLOY_INTEGER_RECURRENT_LAYER_H

enum { FRACTION = 16, UNIT = 15, REACH = 8 << FRACTION, STEPS = 1024, NEXT = STEPS + 1 };
enum { GATES = LSTM ? 4 : GRU ? 3 : 1, SUMS = RNN ? 1 : 4 };

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
        if (GRU && g == 2) {
            sums[2] = rounded_sum(own, 0, shift);
            sums[3] = rounded_sum(product, 0, shift);
            break;
        }
        sums[g] = rounded_sum(own, product, shift);
    }
}

/* The sums of the units from begin to end of a step, for all gates. */
static void products(const struct integer_recurrent *k, const int32_t *p, const STATE *h, int begin, int end);

/* A unit behind a step from its sums. */
static inline int32_t lstm_unit(const int16_t *f, const int16_t *last, const int32_t *a, int32_t c, int32_t *cell) {
    const int32_t kept = scaled(gate(f, a[2]), c);
    const int32_t more = rounded(gate(f, a[0]) * looked_up(f + NEXT, a[3]), 2 * UNIT - FRACTION);
    const int32_t now = *cell = limited(kept + more, (1 << 30) - 1);
    return rounded(gate(f, a[1]) * looked_up(last, now), UNIT);
}

static inline int32_t gru_unit(const int16_t *f, const int32_t *a, int32_t before, int32_t bias) {
    const int32_t turned = scaled(gate(f, a[1]), a[3] + bias);
    const int32_t update = gate(f, a[0]), candidate = looked_up(f + NEXT, a[2] + turned);
    return rounded(((1 << UNIT) - update) * candidate + update * before, UNIT);
}

/* Step i of sample n. */
static void step(const struct integer_recurrent *k, int i, int n, int begin, int end) {
    const int t = k->reverse ? k->steps - 1 - i : i, back = k->reverse ? k->y_step : -k->y_step;
    const int16_t *const f = k->tables + STEPS / 2;
    const int32_t *a = k->sums + begin * SUMS;
    int16_t *const y = k->y + t * k->y_step + n * k->y_batch;
    STATE *const next = states_at(k, i + 1, n);
    products(k, k->p + t * k->p_step + n * k->p_batch, states_at(k, i, n), begin, end);
    int32_t *const cells = LSTM ? k->cells + n * k->cells_batch : 0;
    const int32_t *const c = !LSTM ? 0 : i ? cells : k->c + n * k->c_batch;
    const int16_t *const last = f + (k->functions - 1) * NEXT;
    const int16_t *const before = i ? y + back : k->h + n * k->h_batch;
    for (int u = begin; u < end; u++, a += SUMS) {
        const int32_t now = LSTM  ? lstm_unit(f, last, a, c[u], cells + u)
                            : GRU ? gru_unit(f, a, before[u], k->b[u])
                                  : looked_up(f, a[0]);
        y[u] = (int16_t)now;
        keep_state(next, u, now);
    }
}

static inline void run_layer(const struct integer_recurrent *k) {
    const int share = (k->units + k->cores - 1) / k->cores, last = (core_of_team() + 1) * share;
    const int end = last < k->units ? last : k->units, begin = last - share < end ? last - share : end;
    begin_states(k, begin, end);
    for (int i = 0; i < k->steps; i++) {
        meet(k);
        for (int n = 0; n < k->batch; n++) step(k, i, n, begin, end);
    }
}

#endif
