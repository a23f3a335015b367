/* A recurrent layer of whole numbers, LSTM, GRU or RNN: with the sums of its gates, p[t, n, g, u] + the sum over j of
 * r[g, u, j] * h[n, j], what the layer's equations make of them by tables of its functions.
 *
 * p is [steps, batch, gates, units], r [gates, units, units] of bytes, h and y 16 bits, [batch, units] a step. The
 * inner loop is one multiplication and addition for each r, with two loads: loads bound it.
 */
#include "integer_recurrent.h"

#define UNROLL
enum { BETWEEN = 10 };
typedef int16_t STATE;

static inline int core_of_team(void) {
    return 0;
}

static inline void meet(const struct integer_recurrent *k) {
    (void)k;
}

static inline int32_t limited(int32_t x, int32_t most) {
    return x < -most - 1 ? -most - 1 : x > most ? most : x;
}

/* (a + b) / 2^bits, rounded. */
static inline int32_t rounded_sum(int32_t a, int32_t b, int bits) {
    return (a + b + (1 << (bits - 1))) >> bits;
}

static inline int32_t rounded(int32_t x, int bits) {
    return rounded_sum(x, 0, bits);
}

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

static inline void begin_states(const struct integer_recurrent *k, int begin, int end) {
    (void)k, (void)begin, (void)end;
}

#include "integer_recurrent_layer.h"

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

void KERNEL(const struct integer_recurrent *k) {
    run_layer(k);
}
