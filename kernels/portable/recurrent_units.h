/* What units of recurrent layers and cells have in common. F_FUNCTION, G_FUNCTION and H_FUNCTION are functions of
 * functions.h. */
#ifndef DEEPLOY_RECURRENT_UNITS_H
#define DEEPLOY_RECURRENT_UNITS_H

#include "functions.h"
#include "recurrent.h"

#define APPLY(function, number, x) function((x), k->alpha[number], k->beta[number])

static inline float within(const struct recurrent *k, float x) {
    return k->clip == 0 ? x : fminf(fmaxf(x, -k->clip), k->clip);
}

static inline float gate(const struct recurrent *k, float x) {
    const float limited = within(k, x);
    (void)k;
    return APPLY(F_FUNCTION, 0, limited);
}

#endif
