/* The exponential of a float and functions that follow from it, by operations of IEEE 754 alone, so that their last bit
 * is the same with every C library: deeploy/operators/exponentials.py computes them operation by operation.
 *
 * Polynomials are the best ones of their degrees in floats, by Lawson's iteration (Approximation of functions, 1964);
 * results are within two units in the last place (four of e^x - 1). What is no number stays so. An exponential takes 13 multiplications
 * and 9 additions, where a library's takes as many in 64 bits.
 */
#ifndef DEEPLOY_EXPONENTIALS_H
#define DEEPLOY_EXPONENTIALS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define MAGIC_SUM 12582912.0f /* 1.5 * 2^23: the last bit of what is added to it is a whole one */
#define LN2_UPPER 0.693145752f /* of few bits, so that products with exponents are exact */
#define LN2_REST 1.42860677e-06f

static inline uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* e^x - 1 for |x| < 0.35. */
static inline float expm1_near_zero(float x) {
    const float series = (((0.00139517395f * x + 0.00836961064f) * x + 0.0416661873f) * x + 0.166665122f) * x + 0.5f;
    return x + x * x * series;
}

/* e^x = 2^n e^r with |r| < 0.35; the power of two is multiplied in two halves, since it may be no float. */
static inline float exp_float(float x) {
    const float limited = x < -104 ? -104 : x > 89 ? 89 : x;
    const float shifted = limited * 1.44269502f + MAGIC_SUM, whole = shifted - MAGIC_SUM;
    const int32_t n = (int32_t)(bits_of_float(shifted) - bits_of_float(MAGIC_SUM)), half = n >> 1;
    const float r = (limited - whole * LN2_UPPER) - whole * LN2_REST;
    const float scaled = (1 + expm1_near_zero(r)) * float_of_bits(((uint32_t)half + 127) << 23);
    return scaled * float_of_bits(((uint32_t)(n - half) + 127) << 23);
}

static inline float expm1_float(float x) {
    return fabsf(x) < 0.34f ? expm1_near_zero(x) : exp_float(x) - 1;
}

/* log x = n log 2 + log(1 + f), where 1 + f is between the roots of 1/2 and 2. */
static inline float log_float(float x) {
    if (!(x > 0)) return x == 0 ? -INFINITY : NAN;
    const int is_small = x < 1.17549435e-38f; /* not normal */
    const uint32_t bits = bits_of_float(is_small ? x * 8388608 : x);
    if (bits >= 0x7F800000u) return x;
    const int32_t n = (int32_t)(bits - 0x3F3504F3u) >> 23;
    const float f = float_of_bits(bits - ((uint32_t)n << 23)) - 1, square = f * f;
    const float exponent = (float)(is_small ? n - 23 : n);
    float series = -0.0763442963f * f + 0.127615497f;
    series = ((series * f - 0.131601945f) * f + 0.142017618f) * f - 0.166233569f;
    series = ((series * f + 0.200012267f) * f - 0.250008225f) * f + 0.333333313f;
    const float rest = (square * f * series + exponent * LN2_REST) - 0.5f * square;
    return (f + rest) + exponent * LN2_UPPER;
}

/* Of numbers from 0 to 1: what 1 + x loses is added behind the logarithm. */
static inline float log1p_float(float x) {
    const float sum = 1 + x;
    return log_float(sum) + (x - (sum - 1)) / sum;
}

static inline float tanh_float(float x) {
    const float size = fabsf(x), square = x * x;
    if (size < 0.625f) {
        const float series = (-0.00571703678f * square + 0.0206505787f) * square - 0.0537434965f;
        return x + x * square * ((series * square + 0.133314908f) * square - 0.333332837f);
    }
    return copysignf(1 - 2 / (exp_float(2 * size) + 1), x);
}

/* A polynomial, or 1 - e^-q(|x|) with another one. */
static inline float erf_float(float x) {
    const float size = fabsf(x), square = x * x;
    if (size < 0.84375f) {
        const float series = (-0.000635999313f * square + 0.00505867833f) * square - 0.0268070213f;
        return x + x * (((series * square + 0.112828247f) * square - 0.376125813f) * square + 0.128379166f);
    }
    const float a = size > 4 ? 4 : size;
    const float series = ((-0.000203169096f * a + 0.0031132875f) * a - 0.0225025397f) * a + 0.104495212f;
    const float power = ((series * a + 0.63654995f) * a + 1.12804496f) * a + 0.000107877786f;
    return copysignf(1 - exp_float(-power), x);
}

#endif
