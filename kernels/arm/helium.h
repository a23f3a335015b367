/* Helium (Armv8.1-M): vectors of sixteen bytes or four words, and loops that leave out lanes behind the end of a row
 * (DLSTP, WLSTP, LETP), with a body in portable C, which says what they do. Loops are assembly because gcc 12 does not
 * make such loops by itself. */
#ifndef HELIUM_H
#define HELIUM_H

#include <stdint.h>
#include <string.h>

enum { LANES = 4 };

/* What values are shifted right by, and kept between. */
struct limits {
    int shift, low, high;
};

#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>

typedef int32x4_t words;

static inline words words_of(int32_t a, int32_t b, int32_t c, int32_t d) {
    words v;
    __asm__("vmov %q0[2], %q0[0], %1, %3\n\tvmov %q0[3], %q0[1], %2, %4" : "=&w"(v) : "r"(a), "r"(b), "r"(c), "r"(d));
    return v;
}

static inline void helium_copy(void *to, const void *from, int count) {
    __asm__ volatile(
        "wlstp.8 lr, %2, 2f\n"
        "1: vldrb.8 q0, [%1], #16\n\tvstrb.8 q0, [%0], #16\n\tletp lr, 1b\n"
        "2:"
        : "+r"(to), "+r"(from)
        : "r"(count)
        : "lr", "q0", "memory");
}

static inline void helium_fill(void *to, int value, int count) {
    __asm__ volatile(
        "vdup.8 q0, %2\n\twlstp.8 lr, %1, 2f\n"
        "1: vstrb.8 q0, [%0], #16\n\tletp lr, 1b\n"
        "2:"
        : "+r"(to)
        : "r"(count), "r"(value)
        : "lr", "q0", "memory");
}

/* The products of a vector of `depth` bytes, 1 or more, with four rows of a matrix that are `pitch` apart. */
static inline words helium_dots(const int8_t *x, const int8_t *w, int pitch, int depth) {
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    const int8_t *w1, *w2, *w3;
    __asm__ volatile(
        "add %[w1], %[w], %[pitch]\n\tadd %[w2], %[w1], %[pitch]\n\tadd %[w3], %[w2], %[pitch]\n"
        "\tdlstp.8 lr, %[depth]\n"
        "1: vldrb.8 q0, [%[x]], #16\n"
        "\tvldrb.8 q1, [%[w]], #16\n\tvmladava.s8 %[s0], q0, q1\n"
        "\tvldrb.8 q2, [%[w1]], #16\n\tvmladava.s8 %[s1], q0, q2\n"
        "\tvldrb.8 q3, [%[w2]], #16\n\tvmladava.s8 %[s2], q0, q3\n"
        "\tvldrb.8 q1, [%[w3]], #16\n\tvmladava.s8 %[s3], q0, q1\n"
        "\tletp lr, 1b"
        : [s0] "+Te"(s0), [s1] "+Te"(s1), [s2] "+Te"(s2), [s3] "+Te"(s3), [x] "+r"(x), [w] "+r"(w), [w1] "=&r"(w1),
          [w2] "=&r"(w2), [w3] "=&r"(w3)
        : [pitch] "r"(pitch), [depth] "r"(depth)
        : "lr", "q0", "q1", "q2", "q3", "memory");
    return words_of(s0, s1, s2, s3);
}

static inline int32_t helium_dot(const int8_t *a, const int8_t *b, int depth) {
    int32_t sum = 0;
    __asm__ volatile(
        "dlstp.8 lr, %[depth]\n"
        "1: vldrb.8 q0, [%[a]], #16\n\tvldrb.8 q1, [%[b]], #16\n\tvmladava.s8 %[sum], q0, q1\n\tletp lr, 1b"
        : [sum] "+Te"(sum), [a] "+r"(a), [b] "+r"(b)
        : [depth] "r"(depth)
        : "lr", "q0", "q1", "memory");
    return sum;
}

static inline words words_load(const int32_t *from) {
    return vldrwq_s32(from);
}

/* Lower and upper halves of four 64-bit values. */
static inline void words_load_halves(const int64_t *from, words *lower, words *upper) {
    const int32x4x2_t both = vld2q_s32((const int32_t *)from);
    *lower = both.val[0], *upper = both.val[1];
}

/* (upper half of (v + bias) * factor) + summand, shifted right and limited. */
static inline words words_requantise(words v, words bias, words factor, words summand, struct limits l) {
    v = vaddq_s32(vmulhq_s32(vaddq_s32(v, bias), factor), summand);
    return vminq_s32(vmaxq_s32(vshlq_r_s32(v, -l.shift), vdupq_n_s32(l.low)), vdupq_n_s32(l.high));
}

static inline words words_requantise_same(words v, int bias, int factor, int summand, struct limits l) {
    v = vaddq_n_s32(vmulhq_s32(vaddq_n_s32(v, bias), vdupq_n_s32(factor)), summand);
    return vminq_s32(vmaxq_s32(vshlq_r_s32(v, -l.shift), vdupq_n_s32(l.low)), vdupq_n_s32(l.high));
}

/* The lower bytes of the first `count` lanes, or all, to places that are `at` behind `to`. */
static inline void bytes_scatter(void *to, words at, words v, int count) {
    if (count >= LANES)
        vstrbq_scatter_offset_s32(to, vreinterpretq_u32_s32(at), v);
    else
        vstrbq_scatter_offset_p_s32(to, vreinterpretq_u32_s32(at), v, vctp32q((uint32_t)count));
}

static inline void bytes_store(void *to, words v, int count) {
    if (count >= LANES)
        vstrbq_s32(to, v);
    else
        vstrbq_p_s32(to, v, vctp32q((uint32_t)count));
}

static inline void words_store(int32_t *to, words v) {
    vstrwq_s32(to, v);
}
#else
typedef struct {
    int32_t lane[LANES];
} words;

static inline words words_of(int32_t a, int32_t b, int32_t c, int32_t d) {
    return (words){{a, b, c, d}};
}

static inline void helium_copy(void *to, const void *from, int count) {
    if (count > 0) memcpy(to, from, (size_t)count);
}

static inline void helium_fill(void *to, int value, int count) {
    if (count > 0) memset(to, value, (size_t)count);
}

static inline words helium_dots(const int8_t *x, const int8_t *w, int pitch, int depth) {
    words sums = {{0}};
    for (int j = 0; j < LANES; j++) {
        for (int i = 0; i < depth; i++) sums.lane[j] += x[i] * w[j * pitch + i];
    }
    return sums;
}

static inline int32_t helium_dot(const int8_t *a, const int8_t *b, int depth) {
    int32_t sum = 0;
    for (int i = 0; i < depth; i++) sum += a[i] * b[i];
    return sum;
}

static inline words words_load(const int32_t *from) {
    return (words){{from[0], from[1], from[2], from[3]}};
}

static inline void words_load_halves(const int64_t *from, words *lower, words *upper) {
    for (int j = 0; j < LANES; j++) {
        lower->lane[j] = (int32_t)(from[j] & 0xFFFFFFFF), upper->lane[j] = (int32_t)(from[j] >> 32);
    }
}

static inline words words_requantise(words v, words bias, words factor, words summand, struct limits l) {
    for (int j = 0; j < LANES; j++) {
        const int64_t product = ((int64_t)v.lane[j] + bias.lane[j]) * factor.lane[j];
        const int32_t value = ((int32_t)(product >> 32) + summand.lane[j]) >> l.shift;
        v.lane[j] = value < l.low ? l.low : value > l.high ? l.high : value;
    }
    return v;
}

static inline words words_requantise_same(words v, int bias, int factor, int summand, struct limits l) {
    return words_requantise(v, words_of(bias, bias, bias, bias), words_of(factor, factor, factor, factor),
                            words_of(summand, summand, summand, summand), l);
}

static inline void bytes_scatter(void *to, words at, words v, int count) {
    for (int j = 0; j < LANES && j < count; j++) ((uint8_t *)to)[at.lane[j]] = (uint8_t)(v.lane[j] & 0xFF);
}

static inline void bytes_store(void *to, words v, int count) {
    for (int j = 0; j < LANES && j < count; j++) ((uint8_t *)to)[j] = (uint8_t)(v.lane[j] & 0xFF);
}

static inline void words_store(int32_t *to, words v) {
    memcpy(to, v.lane, sizeof v.lane);
}
#endif

#endif
