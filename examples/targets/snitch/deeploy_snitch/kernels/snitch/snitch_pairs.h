/* Two floats in one register for floating point, and the instructions that compute both at once; on other machines a
 * structure of two floats that is computed to the same bits. */
#ifndef SNITCH_PAIRS_H
#define SNITCH_PAIRS_H

#include <stdint.h>
#include <string.h>

#ifdef __riscv

typedef double pair;
typedef double __attribute__((may_alias)) stored_pair;

/* An operation of two operands. */
#define PAIR_OPERATION(name, number)                                                         \
    static inline pair name(pair a, pair b) {                                                \
        pair result;                                                                         \
        __asm__(".insn r 0x33, 0, " #number ", %0, %1, %2" : "=f"(result) : "f"(a), "f"(b)); \
        return result;                                                                       \
    }
PAIR_OPERATION(pair_add, 0x41)
PAIR_OPERATION(pair_sub, 0x42)
PAIR_OPERATION(pair_mul, 0x43)
PAIR_OPERATION(pair_min, 0x45)
PAIR_OPERATION(pair_max, 0x46)

/* sum + a * b, rounded once. */
static inline pair pair_mac(pair sum, pair a, pair b) {
    __asm__(".insn r 0x33, 0, 0x48, %0, %1, %2" : "+f"(sum) : "f"(a), "f"(b));
    return sum;
}

static inline pair pair_of(float low, float high) {
    pair result;
    __asm__(".insn r 0x33, 0, 0x58, %0, %1, %2" : "=f"(result) : "f"(low), "f"(high));
    return result;
}

/* The lower one becomes the sum of itself and of both of `a`. */
static inline pair pair_total(pair sum, pair a) {
    __asm__(".insn r 0x33, 0, 0x47, %0, %1, t3" : "+f"(sum) : "f"(a));
    return sum;
}

/* At an address that is a multiple of 8. */
static inline pair pair_load(const float *from) {
    return *(const stored_pair *)from;
}

static inline void pair_store(float *to, pair value) {
    *(stored_pair *)to = value;
}

/* A pair whose lower one is at an address, whatever the upper one is. */
static inline pair pair_load_low(const float *from) {
    pair result;
    __asm__("flw %0, %1" : "=f"(result) : "m"(*from));
    return result;
}

static inline void pair_store_low(float *to, pair value) {
    __asm__("fsw %1, %0" : "=m"(*to) : "f"(value));
}

#else

#include <math.h>

typedef struct {
    float low, high;
} pair;

static inline pair pair_of(float low, float high) {
    return (pair){low, high};
}

static inline pair pair_add(pair a, pair b) {
    return pair_of(a.low + b.low, a.high + b.high);
}

static inline pair pair_sub(pair a, pair b) {
    return pair_of(a.low - b.low, a.high - b.high);
}

static inline pair pair_mul(pair a, pair b) {
    return pair_of(a.low * b.low, a.high * b.high);
}

static inline pair pair_min(pair a, pair b) {
    return pair_of(fminf(a.low, b.low), fminf(a.high, b.high));
}

static inline pair pair_max(pair a, pair b) {
    return pair_of(fmaxf(a.low, b.low), fmaxf(a.high, b.high));
}

static inline pair pair_mac(pair sum, pair a, pair b) {
    return pair_of(fmaf(a.low, b.low, sum.low), fmaf(a.high, b.high, sum.high));
}

static inline pair pair_total(pair sum, pair a) {
    return pair_of(sum.low + (a.high + a.low), 0);
}

static inline pair pair_load(const float *from) {
    return pair_of(from[0], from[1]);
}

static inline void pair_store(float *to, pair value) {
    to[0] = value.low, to[1] = value.high;
}

static inline pair pair_load_low(const float *from) {
    return pair_of(from[0], 0);
}

static inline void pair_store_low(float *to, pair value) {
    to[0] = value.low;
}

#endif

static inline pair pair_both(float value) {
    return pair_of(value, value);
}

/* The epilogue of sums: a bias that they begin with, and bounds. */
#ifdef DEEPLOY_EPILOGUE_H
struct ends {
    const float *bias; /* of the first channel, or 0 */
    int bias_step, has_low, has_high;
    pair low, high;
};

/* Compared as integers: the core waits for comparisons of floats. */
static inline int differ(float value, uint32_t bits) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return word != bits;
}

static inline struct ends ends_of(const struct epilogue *e) {
    struct ends result = {0, 0, 0, 0, pair_both(0), pair_both(0)};
#ifdef EPILOGUE_BIAS
    result.bias = (const float *)e->bias, result.bias_step = e->bias_step;
#endif
#ifdef EPILOGUE_CLAMP
    result.has_low = differ(e->low_f, 0xFF800000), result.has_high = differ(e->high_f, 0x7F800000);
    result.low = pair_both(e->low_f), result.high = pair_both(e->high_f);
#endif
    (void)e;
    return result;
}

/* What a sum of a channel begins with. */
static inline pair first_of(const struct ends *e, int channel) {
    return e->bias ? pair_load_low(e->bias + channel * e->bias_step) : pair_both(0);
}

/* What sums of so many channels begin with. */
static inline void begin_sums(float *start, const struct ends *e, int channel, int count) {
    if (!e->bias) {
        for (int j = 0; j < count; j += 2) pair_store(start + j, pair_both(0));
    } else if (e->bias_step) {
        for (int j = 0; j < count; j += 2) pair_store(start + j, pair_load(e->bias + channel + j));
    } else {
        for (int j = 0; j < count; j += 2) pair_store(start + j, pair_both(*e->bias));
    }
}

static inline pair clamped(pair value, const struct ends *e) {
    (void)e;
#ifdef EPILOGUE_CLAMP
    if (e->has_low) value = pair_max(value, e->low);
    if (e->has_high) value = pair_min(value, e->high);
#endif
    return value;
}
#endif

#endif
