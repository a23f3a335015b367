/* The steps of a recurrent layer of floats, for sources that say GATES, core_of_team and meet, and what a step does.
 * R_T is the type of the state's weights; R_FROM widens those in 16 bits. */
#ifndef DEEPLOY_RECURRENT_LAYER_H
#define DEEPLOY_RECURRENT_LAYER_H

#include "recurrent.h"

#ifdef R_FROM
#define W_FROM R_FROM
#endif
#include "weights.h"

enum { RUN = 16 }; /* products that are added up before they enter the accumulator */

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

/* One step of sample n, of the units from `begin` to `end`: p of its inputs, the states h before it, y behind it. */
static void step(const struct recurrent *k, int n, int is_first, const float *p, const float *h, float *y, int begin,
                 int end);

static inline void run_layer(const struct recurrent *k) {
    const int share = (k->units + k->cores - 1) / k->cores, last = (core_of_team() + 1) * share;
    const int end = last < k->units ? last : k->units, begin = last - share < end ? last - share : end;
    const float *before = 0; /* states of the step before, none before the first */
    for (int i = 0; i < k->steps; i++) {
        const int t = k->reverse ? k->steps - 1 - i : i;
        float *const y = (float *)k->y + t * k->y_step;
        for (int n = 0; n < k->batch; n++) {
            const float *const p = (const float *)k->p + t * k->p_step + n * k->p_batch;
            const float *const h = before ? before + n * k->y_batch : (const float *)k->h + n * k->h_batch;
            step(k, n, i == 0, p, h, y + n * k->y_batch, begin, end);
            meet(k);
        }
        before = y;
    }
}

#endif
