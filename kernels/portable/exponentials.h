/* The exponential of a float and functions that follow from it, by operations of IEEE 754 alone, so that their last bit
 * is the same with every C library: deeploy/operators/exponentials.py computes them operation by operation.
 *
 * Polynomials are the best ones of their degrees in floats, by Lawson's iteration (Approximation of functions, 1964);
 * results are within two units in the last place (four of e^x - 1). What is no number stays so. An exponential takes 8
 * multiplications and 11 additions, where a library's takes some in 64 bits.
 *
 * Functions read their coefficients from FLOAT_SERIES, which kernels define anew whose cores are far from constants.
 */
#ifndef DEEPLOY_EXPONENTIALS_H
#define DEEPLOY_EXPONENTIALS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Where coefficients begin: of polynomials, the highest power first. */
enum { EXP_SERIES = 0, LOG_SERIES = 5, TANH_SERIES = 13, ERF_SERIES = 18, ERFC_SERIES = 24, SCALES = 31, SERIES = 35 };

#define MAGIC_BITS 0x4B400000u /* of 1.5 * 2^23: the last bit of what is added to it is a whole one */
/* In a function, since not every kernel that is given these functions calls one. */
static inline const float *float_series(void) {
    static const float series[SERIES] = {
        0.00139517395f,   0.00836961064f,  0.0416661873f,  0.166665122f,   0.5f,
        -0.0763442963f,   0.127615497f,    -0.131601945f,  0.142017618f,   -0.166233569f,
        0.200012267f,     -0.250008225f,   0.333333313f,  //
        -0.00571703678f,  0.0206505787f,   -0.0537434965f, 0.133314908f,   -0.333332837f,
        -0.000635999313f, 0.00505867833f,  -0.0268070213f, 0.112828247f,   -0.376125813f,
        0.128379166f,  //
        -0.000203169096f, 0.0031132875f,   -0.0225025397f, 0.104495212f,   0.63654995f,
        1.12804496f,      0.000107877786f,  //
        12582912.0f,      1.44269502f,     0.693145752f,   1.42860677e-06f};
    return series;
}

#define MAGIC_SUM(c) (c)[SCALES]
#define LOG2_E(c) (c)[SCALES + 1]
#define LN2_UPPER(c) (c)[SCALES + 2] /* of few bits, so that products with exponents are exact */
#define LN2_REST(c) (c)[SCALES + 3]

/* Polynomials of so many coefficients. */
#define SUM_OF_2(c, x) ((c)[0] * (x) + (c)[1])
#define SUM_OF_3(c, x) (SUM_OF_2(c, x) * (x) + (c)[2])
#define SUM_OF_4(c, x) (SUM_OF_3(c, x) * (x) + (c)[3])
#define SUM_OF_5(c, x) (SUM_OF_4(c, x) * (x) + (c)[4])
#define SUM_OF_6(c, x) (SUM_OF_5(c, x) * (x) + (c)[5])
#define SUM_OF_7(c, x) (SUM_OF_6(c, x) * (x) + (c)[6])
#define SUM_OF_8(c, x) (SUM_OF_7(c, x) * (x) + (c)[7])

#define FLOAT_SERIES float_series()
#define exp_float(x) find_exp((x), FLOAT_SERIES)
#define expm1_float(x) find_expm1((x), FLOAT_SERIES)
#define log_float(x) find_log((x), FLOAT_SERIES)
#define log1p_float(x) find_log1p((x), FLOAT_SERIES)
#define tanh_float(x) find_tanh((x), FLOAT_SERIES)
#define erf_float(x) find_erf((x), FLOAT_SERIES)

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
static inline float find_expm1_near_zero(float x, const float *c) {
    return x + x * x * SUM_OF_5(c + EXP_SERIES, x);
}

/* e^x = 2^n e^r with |r| < 0.35. Where the result is surely normal, the exponent is added to its bits; else the power
 * of two, which may be no float, is multiplied in two halves. */
static inline float find_exp(float x, const float *c) {
    const int is_usual = (bits_of_float(x) & 0x7FFFFFFFu) < 0x42AC0000u; /* |x| < 86 */
    const float limited = is_usual ? x : x < -104 ? -104 : x > 89 ? 89 : x;
    const float shifted = limited * LOG2_E(c) + MAGIC_SUM(c), whole = shifted - MAGIC_SUM(c);
    const int32_t n = (int32_t)(bits_of_float(shifted) - MAGIC_BITS), half = n >> 1;
    const float r = (limited - whole * LN2_UPPER(c)) - whole * LN2_REST(c), power = 1 + find_expm1_near_zero(r, c);
    if (is_usual) return float_of_bits(bits_of_float(power) + ((uint32_t)n << 23));
    const float scaled = power * float_of_bits(((uint32_t)half + 127) << 23);
    return scaled * float_of_bits(((uint32_t)n - (uint32_t)half + 127) << 23);
}

static inline float find_expm1(float x, const float *c) {
    return fabsf(x) < 0.34f ? find_expm1_near_zero(x, c) : find_exp(x, c) - 1;
}

/* log x = n log 2 + log(1 + f), where 1 + f is between the roots of 1/2 and 2. */
static inline float find_log(float x, const float *c) {
    if (!(x > 0)) return x == 0 ? -INFINITY : NAN;
    const int is_small = x < 1.17549435e-38f; /* not normal */
    const uint32_t bits = bits_of_float(is_small ? x * 8388608 : x);
    if (bits >= 0x7F800000u) return x;
    const int32_t n = (int32_t)(bits - 0x3F3504F3u) >> 23;
    const float f = float_of_bits(bits - ((uint32_t)n << 23)) - 1, square = f * f;
    const float exponent = (float)(is_small ? n - 23 : n);
    const float rest = (square * f * SUM_OF_8(c + LOG_SERIES, f) + exponent * LN2_REST(c)) - 0.5f * square;
    return (f + rest) + exponent * LN2_UPPER(c);
}

/* Of numbers from 0 to 1: what 1 + x loses is added behind the logarithm. */
static inline float find_log1p(float x, const float *c) {
    const float sum = 1 + x;
    return find_log(sum, c) + (x - (sum - 1)) / sum;
}

static inline float find_tanh(float x, const float *c) {
    const float size = fabsf(x), square = x * x;
    if (size < 0.625f) return x + x * square * SUM_OF_5(c + TANH_SERIES, square);
    return copysignf(1 - 2 / (find_exp(2 * size, c) + 1), x);
}

/* A polynomial, or 1 - e^-q(|x|) with another one. */
static inline float find_erf(float x, const float *c) {
    const float size = fabsf(x), square = x * x;
    if (size < 0.84375f) return x + x * SUM_OF_6(c + ERF_SERIES, square);
    const float limited = size > 4 ? 4 : size;
    return copysignf(1 - find_exp(-SUM_OF_7(c + ERFC_SERIES, limited), c), x);
}

#endif
