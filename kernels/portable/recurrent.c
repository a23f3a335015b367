/* Macros: LSTM, GRU or RNN; F_FUNCTION, G_FUNCTION, H_FUNCTION of functions.h; CELL for one step with a product that
 * was made outside. R_T is the type of the state's weights; R_FROM widens those in 16 bits. */
#include "recurrent.h"

#include "functions.h"

#ifdef R_FROM
#define W_FROM R_FROM
#endif
#include "weights.h"

/* Of a team that divides the units, which core calls, and where its cores wait for each other. */
#ifndef CORE
#define CORE() 0
#define MEET(k) (void)0
#endif

#if LSTM
enum { GATES = 4 };
#elif GRU
enum { GATES = 3 };
#else
enum { GATES = 1 };
#endif
enum { RUN = 16 }; /* products that are added up before they enter the accumulator */

#define APPLY(function, number, x) function((x), k->alpha[number], k->beta[number])

static inline float within(const struct recurrent *k, float x) {
    return k->clip == 0 ? x : fminf(fmaxf(x, -k->clip), k->clip);
}

static inline float gate(const struct recurrent *k, float x) {
    const float limited = within(k, x);
    (void)k;
    return APPLY(F_FUNCTION, 0, limited);
}

#if !CELL
/* Adds the products of the state and the weights of a unit in `gates` gates, `next` elements apart. */
static inline void multiply(float *acc, const float *h, const R_T *r, int units, int next, int gates) {
    for (int from = 0; from < units; from += RUN) {
        const int to = units - from < RUN ? units : from + RUN;
        float part[GATES] = {0};
        for (int j = from; j < to; j++) {
            for (int g = 0; g < gates; g++) part[g] += WEIGHT(r[g * next + j]) * h[j];
        }
        for (int g = 0; g < gates; g++) acc[g] += part[g];
    }
}
#endif

#if LSTM
/* The state of unit `u` from the sums of its gates. */
static float lstm(const struct recurrent *k, const float *a, const float *c, float *cells, int u) {
    const float *const w = k->w;
    const float before = c[u];
    const float input = gate(k, w ? a[0] + w[u] * before : a[0]);
    const float forget = k->input_forget ? 1 - input : gate(k, w ? a[2] + w[2 * k->w_gate + u] * before : a[2]);
    const float candidate = within(k, a[3]);
    const float cell = forget * before + input * APPLY(G_FUNCTION, 1, candidate);
    cells[u] = cell;
    return gate(k, w ? a[1] + w[k->w_gate + u] * cell : a[1]) * APPLY(H_FUNCTION, 2, cell);
}
#endif

#if GRU
static float gru(const struct recurrent *k, float update, float candidate, float before) {
    const float limited = within(k, candidate);
    (void)k;
    return (1 - update) * APPLY(G_FUNCTION, 1, limited) + update * before;
}
#endif

#if CELL
void KERNEL(const struct recurrent *k) {
    for (int n = 0; n < k->batch; n++) {
        const float *const p = (const float *)k->p + n * k->p_batch, *const q = (const float *)k->q + n * k->q_batch;
        float *const y = (float *)k->y + n * k->y_batch;
        for (int u = 0; u < k->units; u++) {
            float a[GATES];
            for (int g = 0; g < GATES; g++) a[g] = p[g * k->p_gate + u];
#if LSTM
            for (int g = 0; g < GATES; g++) a[g] += q[g * k->q_gate + u];
            y[u] = lstm(k, a, (const float *)k->c + n * k->c_batch, (float *)k->cells + n * k->cells_batch, u);
#else
            const float update = gate(k, a[0] + q[u]), reset = gate(k, a[1] + q[k->q_gate + u]);
            y[u] = gru(k, update, a[2] + reset * q[2 * k->q_gate + u], ((const float *)k->h)[n * k->h_batch + u]);
#endif
        }
    }
}
#else
/* One step of the units from `begin` to `end`: p of its inputs, the states h and c before it, y behind it. */
static void step(const struct recurrent *k, const float *p, const float *h, const float *c, float *y, float *cells,
                 int begin, int end) {
    const int units = k->units, next = units * units;
    const R_T *const r = (const R_T *)k->r;
    (void)c;
    (void)cells;
#if GRU && !RESETS_PRODUCT
    for (int u = begin; u < end; u++) {
        float a[GATES] = {p[u], p[k->p_gate + u]};
        multiply(a, h, r + u * units, units, next, 2);
        k->state[u] = gate(k, a[0]), k->state[units + u] = gate(k, a[1]) * h[u];
    }
    MEET(k);
    for (int u = begin; u < end; u++) {
        float a = p[2 * k->p_gate + u];
        multiply(&a, k->state + units, r + 2 * next + u * units, units, next, 1);
        y[u] = gru(k, k->state[u], a, h[u]);
    }
#else
    for (int u = begin; u < end; u++) {
        float a[GATES] = {0};
        multiply(a, h, r + u * units, units, next, GATES);
#if LSTM
        for (int g = 0; g < GATES; g++) a[g] += p[g * k->p_gate + u];
        y[u] = lstm(k, a, c, cells, u);
#elif GRU
        const float update = gate(k, p[u] + a[0]), reset = gate(k, p[k->p_gate + u] + a[1]);
        y[u] = gru(k, update, p[2 * k->p_gate + u] + reset * (a[2] + ((const float *)k->b)[u]), h[u]);
#else
        y[u] = gate(k, p[u] + a[0]);
#endif
    }
#endif
}

void KERNEL(const struct recurrent *k) {
    const int share = (k->units + k->cores - 1) / k->cores, last = (CORE() + 1) * share;
    const int end = last < k->units ? last : k->units, begin = last - share < end ? last - share : end;
    const float *before = 0; /* states of the step before, none before the first */
    for (int i = 0; i < k->steps; i++) {
        const int t = k->reverse ? k->steps - 1 - i : i;
        float *const y = (float *)k->y + t * k->y_step;
        for (int n = 0; n < k->batch; n++) {
            const float *const p = (const float *)k->p + t * k->p_step + n * k->p_batch;
            const float *const h = before ? before + n * k->y_batch : (const float *)k->h + n * k->h_batch;
#if LSTM
            float *const cells = (float *)k->cells + n * k->cells_batch;
            const float *const c = before ? cells : (const float *)k->c + n * k->c_batch;
#else
            float *const cells = 0;
            const float *const c = 0;
#endif
            step(k, p, h, c, y + n * k->y_batch, cells, begin, end);
            MEET(k);
        }
        before = y;
    }
}
#endif
