/* The layer of ../portable/integer_recurrent.c by a team of cores that multiply four bytes at a time: states are kept
 * as bytes, four upper ones, then their four lower ones. */
#include "../portable/integer_recurrent.h"
#include "deeploy_rt.h"
#include "xpulp.h"

#define HAS_TEAM
#define CORE() rt_core()
#define MEET(k) \
    if ((k)->cores > 1) rt_barrier()
#define STATE int8_t
#define UNROLL _Pragma("GCC unroll 4")
#define BEGIN_STATES(k, begin, end)                                                                        \
    for (int n = 0; n < (k)->batch; n++) {                                                                 \
        for (int u = begin; u < end; u++) keep_state(states_at(k, 0, n), u, (k)->h[n * (k)->h_batch + u]); \
    }

#define limited xp_clip
#define rounded xp_round
#define rounded_sum xp_add_round

static inline int32_t between(const int16_t *table, int32_t at, int32_t rest) {
    return xp_dotsp2(xp_halves_at(table, at), xp_pack((uint32_t)rest, (1 << 10) - (uint32_t)rest));
}

static inline STATE *states_at(const struct integer_recurrent *k, int step, int n) {
    return k->state + ((step & 1) * k->batch + n) * ((k->units + 3) >> 2) * 8;
}

static inline void keep_state(STATE *states, int u, int32_t y) {
    STATE *const place = states + (u >> 2) * 8 + (u & 3);
    place[0] = (int8_t)(y >> 8);
    ((uint8_t *)place)[4] = (uint8_t)y;
}

#include "../portable/integer_recurrent.c"

#if defined(LSTM)
#define EACH_GATE(action) action(0) action(1) action(2) action(3)
#elif defined(GRU)
#define EACH_GATE(action) action(0) action(1) action(2)
#else
#define EACH_GATE(action) action(0)
#endif

static void products(const struct integer_recurrent *k, const int32_t *p, const STATE *h, int begin, int end) {
    const int units = k->units, words = units >> 2, next = k->p_gate, shift_p = k->shift_p, shift = k->shift;
    const int32_t *factors = k->factors + begin * GATES * 2;
    int32_t *sums = k->sums + begin * SUMS;
#define WEIGHTS(g) const int8_t *r##g = k->r + (g * units + begin) * units;
    EACH_GATE(WEIGHTS)
    p += begin;
    for (int u = begin; u < end; u++, p++, sums += SUMS, factors += GATES * 2) {
        const STATE *state = h;
#define BEGIN(g) int32_t high##g = 0, low##g = 0;
        EACH_GATE(BEGIN)
#ifdef XPULP_INSN
#define LOAD(to, from) ".insn i 0x0b, 2, " #to ", %[" #from "], 4\n"
#define DOT(g, weights)                                   \
    ".insn r 0x57, 1, 0x5c, %[high" #g "], t0, " #weights \
    "\n"                                                  \
    ".insn r 0x57, 1, 0x54, %[low" #g "], t1, " #weights "\n"
#define OPERANDS(g) [high##g] "+r"(high##g), [low##g] "+r"(low##g), [r##g] "+r"(r##g)
#define AROUND(body, length)        \
    ".option push\n.option norvc\n" \
    ".insn i 0x7b, 4, x0, %[n], " length "\n" LOAD(t0, h) LOAD(t1, h) body ".option pop\n"
        if (words) {
#if defined(LSTM)
            __asm__ volatile(
                AROUND(LOAD(t2, r0) LOAD(t3, r1) DOT(0, t2) LOAD(t2, r2) DOT(1, t3) LOAD(t3, r3) DOT(2, t2) DOT(3, t3),
                       "28")
                : OPERANDS(0), OPERANDS(1), OPERANDS(2), OPERANDS(3), [h] "+r"(state)
                : [n] "r"(words)
                : "t0", "t1", "t2", "t3");
#elif defined(GRU)
            __asm__ volatile(AROUND(LOAD(t2, r0) LOAD(t3, r1) DOT(0, t2) LOAD(t2, r2) DOT(1, t3) DOT(2, t2), "22")
                             : OPERANDS(0), OPERANDS(1), OPERANDS(2), [h] "+r"(state)
                             : [n] "r"(words)
                             : "t0", "t1", "t2", "t3");
#else
            __asm__ volatile(AROUND(LOAD(t2, r0) "nop\n" DOT(0, t2), "12")
                             : OPERANDS(0), [h] "+r"(state)
                             : [n] "r"(words)
                             : "t0", "t1", "t2");
#endif
        }
#else
#define DOT(g)                                          \
    high##g = xp_sdotsp(above, xp_load(r##g), high##g); \
    low##g = xp_sdotusp(below, xp_load(r##g), low##g);  \
    r##g += 4;
        for (int j = 0; j < words; j++, state += 8) {
            const uint32_t above = xp_load(state), below = xp_load(state + 4);
            EACH_GATE(DOT)
        }
#endif
#define LAST(g) high##g += *r##g * state[j], low##g += *r##g * (uint8_t)state[4 + j], r##g++;
        for (int j = 0; j < (units & 3); j++) {
            EACH_GATE(LAST)
        }
#define END(g) high##g * 256 + low##g,
        add(sums, p, next, shift_p, shift, (const int32_t[]){EACH_GATE(END)}, factors);
    }
}
