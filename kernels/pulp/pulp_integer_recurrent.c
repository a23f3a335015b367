/* The layer of ../portable/integer_recurrent.c by a team of cores that multiply two halves of a word at a time. */
#include "deeploy_rt.h"
#include "xpulp.h"

#define CORE() rt_core()
#define MEET(k) \
    if ((k)->cores > 1) rt_barrier()
#define HAS_MULTIPLY

#if defined(LSTM)
#define EACH_GATE(action) action(0) action(1) action(2) action(3)
#elif defined(GRU)
#define EACH_GATE(action) action(0) action(1) action(2)
#else
#define EACH_GATE(action) action(0)
#endif

static inline void multiply(int32_t *acc, const int16_t *h, const int16_t *r, int units, int next) {
#define BEGIN(g)                        \
    const int16_t *r##g = r + g * next; \
    int32_t a##g = 0;
#define DOT(g) a##g = xp_sdotsp2(xp_load(r##g), state, a##g), r##g += 2;
#define LAST(g) a##g += (int32_t)*r##g * *h;
#define END(g) acc[g] = a##g;
    EACH_GATE(BEGIN)
    for (int j = units >> 1; j > 0; j--, h += 2) {
        const uint32_t state = xp_load(h);
        EACH_GATE(DOT)
    }
    if (units & 1) {
        EACH_GATE(LAST)
    }
    EACH_GATE(END)
}

#include "../portable/integer_recurrent.c"
