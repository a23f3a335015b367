/* The layer of ../portable/integer_recurrent.c by a team of cores that multiply four bytes at a time: states are kept
 * as bytes, four upper ones, then their four lower ones.
 *
 * p is [steps, batch, gates, units], r [gates, units, units] of bytes, h and y 16 bits, [batch, units] a step; cores
 * divide the units. For four products of 8 by 16 bits of every gate, the inner loop takes 14 instructions (LSTM), 11
 * (GRU) or 6 (RNN), 0.9 to 1.5 a product; cores meet after every step. Instructions bound it, of few units the
 * meetings.
 */
#include "../portable/integer_recurrent.h"
#include "deeploy_rt.h"
#include "xpulp.h"

#define UNROLL _Pragma("GCC unroll 4")
enum { BETWEEN = 10 };
typedef int8_t STATE;

static inline int core_of_team(void) {
    return rt_core();
}

static inline void meet(const struct integer_recurrent *k) {
    if (k->cores > 1) rt_barrier();
}

static inline int32_t limited(int32_t x, int32_t most) {
    return xp_clip(x, most);
}

static inline int32_t rounded_sum(int32_t a, int32_t b, int bits) {
    return xp_add_round(a, b, bits);
}

FOLDED int32_t rounded(int32_t x, int bits) {
    return xp_round(x, bits);
}

static inline int32_t between(const int16_t *table, int32_t at, int32_t rest) {
    return xp_dotsp2(xp_halves_at(table, at), xp_pack((uint32_t)rest, (1 << BETWEEN) - (uint32_t)rest));
}

static inline STATE *states_at(const struct integer_recurrent *k, int step, int n) {
    return k->state + ((step & 1) * k->batch + n) * ((k->units + 3) >> 2) * 8;
}

static inline void keep_state(STATE *states, int u, int32_t y) {
    STATE *const place = states + (u >> 2) * 8 + (u & 3);
    place[0] = (int8_t)(y >> 8);
    ((uint8_t *)place)[4] = (uint8_t)y;
}

static inline void begin_states(const struct integer_recurrent *k, int begin, int end) {
    for (int n = 0; n < k->batch; n++) {
        for (int u = begin; u < end; u++) keep_state(states_at(k, 0, n), u, k->h[n * k->h_batch + u]);
    }
}

#include "../portable/integer_recurrent_layer.h"

/* What a gate adds up: products with upper and with lower bytes of states, by its weights. */
struct sum_of_gate {
    int32_t high, low;
    const int8_t *r;
};

static inline void add_words(struct sum_of_gate *s, uint32_t above, uint32_t below) {
    const uint32_t weights = xp_load(s->r);
    s->high = xp_sdotsp(above, weights, s->high), s->low = xp_sdotusp(below, weights, s->low), s->r += 4;
}

static inline void add_last(struct sum_of_gate *s, int above, int below) {
    s->high += *s->r * above, s->low += *s->r * below, s->r++;
}

static inline int32_t sum_of(const struct sum_of_gate *s) {
    return s->high * 256 + s->low;
}

#define DOTS_OF(g, weights)                               \
    ".insn r 0x57, 1, 0x5c, %[high" #g "], t0, " #weights \
    "\n"                                                  \
    ".insn r 0x57, 1, 0x54, %[low" #g "], t1, " #weights "\n"
#define OF_GATE(g, s) [high##g] "+r"((s).high), [low##g] "+r"((s).low), [r##g] "+r"((s).r)
#define OF_LSTM         \
    XP_LOAD("t2", "r0") \
    XP_LOAD("t3", "r1") \
    DOTS_OF(0, t2) XP_LOAD("t2", "r2") DOTS_OF(1, t3) XP_LOAD("t3", "r3") DOTS_OF(2, t2) DOTS_OF(3, t3)
#define OF_GRU XP_LOAD("t2", "r0") XP_LOAD("t3", "r1") DOTS_OF(0, t2) XP_LOAD("t2", "r2") DOTS_OF(1, t3) DOTS_OF(2, t2)
#define OF_RNN XP_LOAD("t2", "r0") "nop\n" DOTS_OF(0, t2)

static void products(const struct integer_recurrent *k, const int32_t *p, const STATE *h, int begin, int end) {
    const int units = k->units, words = units >> 2, next = k->p_gate, shift_p = k->shift_p, shift = k->shift;
    const int32_t *factors = k->factors + begin * GATES * 2;
    int32_t *sums = k->sums + begin * SUMS;
    const int8_t *const r = k->r + begin * units;
    struct sum_of_gate a = {0, 0, r}, b = {0, 0, r}, c = {0, 0, r}, d = {0, 0, r};
    if (!RNN) b.r += units * units, c.r += 2 * units * units;
    if (LSTM) d.r += 3 * units * units;
    p += begin;
    for (int u = begin; u < end; u++, p++, sums += SUMS, factors += GATES * 2) {
        const STATE *state = h;
        a.high = a.low = b.high = b.low = c.high = c.low = d.high = d.low = 0;
        if (XPULP_INSN && words) {
            XP_BLOCK(BEGIN ".insn i 0x7b, 4, x0, %[n], %[length]\n" XP_LOAD("t0", "h") XP_LOAD("t1", "h")
                         EITHER("%[gates] == 4", OF_LSTM, EITHER("%[gates] == 3", OF_GRU, OF_RNN)) END : OF_GATE(0, a),
                     OF_GATE(1, b), OF_GATE(2, c), OF_GATE(3, d), [h] "+r"(state) : [n] "r"(words), [gates] "i"(GATES),
                     [length] "i"(2 * (LSTM  ? 14
                                       : GRU ? 11
                                             : 6)) : "t0",
                     "t1", "t2", "t3");
        }
        for (int j = 0; j < words && !XPULP_INSN; j++, state += 8) {
            const uint32_t above = xp_load(state), below = xp_load(state + 4);
            add_words(&a, above, below);
            if (!RNN) add_words(&b, above, below), add_words(&c, above, below);
            if (LSTM) add_words(&d, above, below);
        }
        for (int j = 0; j < (units & 3); j++) {
            const int above = state[j], below = (uint8_t)state[4 + j];
            add_last(&a, above, below);
            if (!RNN) add_last(&b, above, below), add_last(&c, above, below);
            if (LSTM) add_last(&d, above, below);
        }
        add(sums, p, next, shift_p, shift, (const int32_t[]){sum_of(&a), sum_of(&b), sum_of(&c), sum_of(&d)}, factors);
    }
}

void KERNEL(const struct integer_recurrent *k) {
    run_layer(k);
}
