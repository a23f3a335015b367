/* Epilogues of kernels with Helium, of four outputs at a time: of one channel, or of four neighbouring ones. With
 * REQUANT_WORDS a requantisation is the upper word of (acc + bias) * mul, to which a word is added: `add` holds the
 * bias below and that word above, one entry per channel. Included before the header of a kernel. */
#ifndef HELIUM_EPILOGUE_H
#define HELIUM_EPILOGUE_H

#ifdef REQUANT_WORDS
#undef EPILOGUE_BIAS
#endif
#include "../portable/epilogue.h"
#include "helium.h"

/* What the outputs of one channel are made with; all channels have the same limits. */
#ifdef REQUANT_WORDS
struct channel {
    int32_t bias, mul, summand;
    struct limits limits;
};

static inline struct limits limits_of(const struct epilogue *e) {
    return (struct limits){e->shift - 32, e->low, e->high};
}

static inline struct channel channel_of(const struct epilogue *e, int channel, struct limits limits) {
    const int64_t both = ((const ADD_T *)e->add)[channel];
    return (struct channel){(int32_t)(both & 0xFFFFFFFF), ((const MUL_T *)e->mul)[channel], (int32_t)(both >> 32),
                            limits};
}

static inline Y_T finish_one(int32_t sum, struct channel c) {
    const int32_t high = (int32_t)((int64_t)(sum + c.bias) * c.mul >> 32), value = (high + c.summand) >> c.limits.shift;
    const int32_t least = value < c.limits.low ? c.limits.low : value;
    return (Y_T)(least > c.limits.high ? c.limits.high : least);
}

/* The first `count` outputs of one channel, which lie so many elements behind y. */
static inline void finish_same(words sums, Y_T *y, words at, int count, struct channel c) {
    bytes_scatter(y, at, words_requantise_same(sums, c.bias, c.mul, c.summand, c.limits), count);
}

/* The constants of the next channels. */
struct constants {
    const ADD_T *add;
    const MUL_T *mul;
    struct limits limits;
};

static inline struct constants constants_of(const struct epilogue *e, int channel) {
    return (struct constants){(const ADD_T *)e->add + channel, (const MUL_T *)e->mul + channel, limits_of(e)};
}

static inline Y_T *finish_four(words sums, Y_T *y, struct constants *c) {
    words bias, summand;
    words_load_halves(c->add, &bias, &summand);
    bytes_store(y, words_requantise(sums, bias, words_load(c->mul), summand, c->limits), LANES);
    c->add += LANES, c->mul += LANES;
    return y + LANES;
}

static inline Y_T *finish_next(int32_t sum, Y_T *y, struct constants *c) {
    const struct epilogue e = {.add = c->add++, .mul = c->mul++};
    *y = finish_one(sum, channel_of(&e, 0, c->limits));
    return y + 1;
}
#else
struct channel {
    const struct epilogue *epilogue;
    int channel;
};

static inline struct limits limits_of(const struct epilogue *e) {
    (void)e;
    return (struct limits){0, 0, 0};
}

static inline struct channel channel_of(const struct epilogue *e, int channel, struct limits limits) {
    (void)limits;
    return (struct channel){e, channel};
}

static inline Y_T finish_one(int32_t sum, struct channel c) {
    return finish(sum, c.epilogue, c.channel);
}

OUT_OF_LINE void finish_same(words sums, Y_T *y, words at, int count, struct channel c) {
    int32_t acc[LANES], places[LANES];
    words_store(acc, sums), words_store(places, at);
    for (int j = 0; j < count; j++) y[places[j]] = finish(acc[j], c.epilogue, c.channel);
}

struct constants {
    const struct epilogue *epilogue;
    int channel;
};

static inline struct constants constants_of(const struct epilogue *e, int channel) {
    return (struct constants){e, channel};
}

static inline Y_T *finish_next(int32_t sum, Y_T *y, struct constants *c) {
    *y = finish(sum, c->epilogue, c->channel++);
    return y + 1;
}

OUT_OF_LINE Y_T *finish_four(words sums, Y_T *y, struct constants *c) {
    int32_t acc[LANES];
    words_store(acc, sums);
    for (int j = 0; j < LANES; j++) y = finish_next(acc[j], y, c);
    return y;
}
#endif

/* Outputs of one vector with `rows` rows of a matrix that are `pitch` apart; the first row is output channel
 * `channel`. */
OUT_OF_LINE void multiply_rows(const int8_t *x, const int8_t *w, int pitch, int depth, int rows, Y_T *y,
                               const struct epilogue *e, int channel) {
    struct constants c = constants_of(e, channel);
    for (Y_T *const end = y + (rows & ~(LANES - 1)); y != end; w += LANES * pitch)
        y = finish_four(helium_dots(x, w, pitch, depth), y, &c);
    for (Y_T *const end = y + (rows & (LANES - 1)); y != end; w += pitch)
        y = finish_next(helium_dot(x, w, depth), y, &c);
}

#endif
