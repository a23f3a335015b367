/* Functions of floats, sixteen elements at a time.
 *
 * With r = 1 / (1 + 2^-|t|), whose first guess is a polynomial, a sigmoid is 0.5 + (r - 0.5 with the sign of t). From
 * it tanh is made, and the distribution function of the normal distribution (erf, GELU), where t is an odd polynomial
 * of x. Other functions are a line, also one between bounds, or 2^t. What lies at no multiple of 8 bytes or is less
 * than sixteen elements goes through a copy.
 */
#include "../portable/unary.h"

#include <math.h>

#include "../portable/loops.h"
#include "snitch_exponential.h"

/* Forms: a sigmoid; one of an odd polynomial, one of a polynomial of two terms; 2^t; a line; one between 0 and 1; one
 * below 0 and x above. */
#define SIGMOID 1
#define POLYNOMIAL 2
#define CUBIC 3
#define POWER 4
#define LINE 5
#define BOUNDED 6
#define BROKEN 7

/* Of every function: its form, t = x * factor, scale * result + offset, whether x is a factor of that. */
#define ROW_sigmoid (SIGMOID, LOG2_E, 1, 0.5f, 0)
#define ROW_hyperbolic_tangent (SIGMOID, 2 * LOG2_E, 2, 0, 0)
#define ROW_scaled_tanh (SIGMOID, 2 * LOG2_E * k->beta, 2 * k->alpha, 0, 0)
#define ROW_silu (SIGMOID, LOG2_E * k->alpha, 1, 0.5f, 1)
#define ROW_gelu (POLYNOMIAL, 1, 1, 0.5f, 1)
#define ROW_gelu_tanh (CUBIC, 1, 1, 0.5f, 1)
#define ROW_error_function (POLYNOMIAL, 1.41421356f, 2, 0, 0)
#define ROW_natural_exponential (POWER, LOG2_E, 1, 0, 0)
#define ROW_affine (LINE, k->alpha, 1, k->beta, 0)
#define ROW_negative (LINE, -1, 1, 0, 0)
#define ROW_hard_sigmoid (BOUNDED, k->alpha, 1, k->beta, 0)
#define ROW_hard_swish (BOUNDED, 1.0f / 6, 1, 0.5f, 1)
#define ROW_leaky_relu (BROKEN, k->alpha, 1, 0, 0)
#define PICK_FORM(form, factor, scale, offset, has_x) form
#define PICK_FACTOR(form, factor, scale, offset, has_x) factor
#define PICK_SCALE(form, factor, scale, offset, has_x) scale
#define PICK_OFFSET(form, factor, scale, offset, has_x) offset
#define PICK_HAS_X(form, factor, scale, offset, has_x) has_x
#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)
#define APPLIED(macro, operands) macro operands
#define OF_FUNCTION(what) APPLIED(what, JOIN(ROW_, FUNCTION))
#define FORM OF_FUNCTION(PICK_FORM)
#define HAS_X OF_FUNCTION(PICK_HAS_X)
#define HAS_TERMS (FORM == POLYNOMIAL || FORM == CUBIC)
#define HAS_SIGN (FORM == SIGMOID || HAS_TERMS)
#define PASSES (HAS_SIGN + HAS_X + (FORM == BROKEN)) /* of the second stream over sixteen elements */

/* Numbers of the steps beyond those of the exponential, the first of which is the factor. */
#define FACTOR 0
#define BEYOND 10
#define ONE 11
#define TWO 12
#define HALF 13
#define SCALE 14
#define OFFSET 15
#define GUESS 16
#define TERMS 19
#define ALL 26

static void set_steps(const struct unary *k, float *steps) {
    const float factor = OF_FUNCTION(PICK_FACTOR), scale = OF_FUNCTION(PICK_SCALE);
    float of[ALL] = {factor,
                     EXPONENTIAL_STEPS,
                     5.5f,
                     1,
                     2,
                     0.5f,
                     scale,
                     OF_FUNCTION(PICK_OFFSET),
                     /* 1 / d between 1 and 2 */ 2.12121203f,
                     -1.45454496f,
                     0.32323206f,
#if FORM == CUBIC
                     /* of GELU by tanh */ 2.30220819f,
                     0.102943239f
#else
                     /* log2(P / (1 - P)) / t by the square of t up to 5.5, P the normal distribution of t */
                     2.3022072f, 0.104838578f, -9.5590978e-5f, -1.59389966e-4f, 1.14524504e-5f, -3.85049606e-7f,
                     5.21001374e-9f
#endif
    };
    (void)k;
#if FORM == POWER /* 2^(n - 1) times twice the polynomial, so that n may be 128 */
    of[LOWEST] = -126, of[MAGIC] -= 1, of[BEYOND] = 128.5f;
    for (int i = 0; i < 6; i++) of[COEFFICIENTS + i] *= 2;
#elif HAS_SIGN
    of[LOWEST] = -64;                   /* 2^t is too small to be added to 1 */
    if (factor < 0) of[SCALE] = -scale; /* the sign is that of x */
#endif
    for (int i = 0; i < ALL; i++) steps[2 * i] = steps[2 * i + 1] = of[i];
}

#ifdef __riscv

#define STEP_TEXT(register, number) "fld " register ", 8*" #number "(%[steps])\n"
#define STEP(register, number) STEP_TEXT(register, number)
#define TERM(number) OF_BOTH("0x43, f8, f8, f16") STEP("f7", number) OF_FIRST("0x41, f8, f8, f7")
#define IMPROVE OF_BOTH("0x43, f16, f8, f24") OF_SECOND("0x42, f16, f7, f16") OF_BOTH("0x43, f24, f24, f16")
#if HAS_TERMS /* f24 to f31: t between the bounds, times the polynomial of its square */
#if FORM == CUBIC
#define SUM_OF_TERMS OF_FIRST("0x43, f8, f16, f6")
#define HIGHEST 20
#else
#define SUM_OF_TERMS                                                                                                   \
    OF_FIRST("0x43, f8, f16, f6")                                                                                      \
    STEP("f7", 24) OF_FIRST("0x41, f8, f8, f7") TERM(23) TERM(22) TERM(21) OF_BOTH("0x43, f8, f8, f16") STEP("f7", 20) \
        OF_FIRST("0x41, f8, f8, f7") OF_BOTH("0x43, f8, f8, f16")
#define HIGHEST 25
#endif
#define EXPONENT                                                                                                       \
    OF_RESULT("0x43, f24, ft0, f3")                                                                                    \
    STEP("f4", BEYOND)                                                                                                 \
    ".insn r 0x33, 0, 0x4E, f5, f4, f4\n" OF_FIRST("0x45, f24, f24, f4") OF_FIRST("0x46, f24, f24, f5")                \
        OF_BOTH("0x43, f16, f24, f24") STEP("f6", HIGHEST) SUM_OF_TERMS STEP("f7", TERMS) OF_FIRST("0x41, f8, f8, f7") \
            OF_BOTH("0x43, f24, f24, f8")
#else
#define EXPONENT OF_RESULT("0x43, f24, ft0, f3")
#endif
#if HAS_X
#define FINISHED(from) OF_FIRST("0x41, " from ", " from ", f6") OF_FIRST("0x43, f8, " from ", ft1")
#else
#define FINISHED(from) OF_FIRST("0x41, f8, " from ", f6")
#endif

#if HAS_SIGN
#define STEPS_OF_FORM                                                                                                 \
    EXPONENT STEP("f5", 2) OF_FIRST("0x4D, f24, f24, f5") OF_FIRST("0x46, f24, f24, f5") POWER_OF_TWO STEP("f3", ONE) \
        STEP("f4", 18) STEP("f5", 17) STEP("f6", GUESS) STEP("f7", TWO) OF_FIRST("0x41, f8, f8, f3")                  \
            OF_FIRST("0x43, f24, f8, f4") OF_FIRST("0x41, f24, f24, f5") OF_BOTH("0x43, f24, f24, f8")                \
                OF_FIRST("0x41, f24, f24, f6") IMPROVE IMPROVE STEP("f3", HALF) STEP("f4", SCALE) STEP("f6", OFFSET)  \
                    OF_FIRST("0x42, f24, f24, f3") OF_FIRST("0x4D, f24, f24, ft1") OF_FIRST("0x43, f24, f24, f4")     \
                        FINISHED("f24")
#elif FORM == POWER
#define STEPS_OF_FORM               \
    OF_RESULT("0x43, f24, ft0, f3") \
    STEP("f4", 2) STEP("f5", BEYOND) OF_FIRST("0x46, f24, f24, f4") OF_FIRST("0x45, f24, f24, f5") POWER_OF_TWO
#elif FORM == BROKEN
#define STEPS_OF_FORM                                                                           \
    STEP("f4", OFFSET)                                                                          \
    OF_RESULT("0x45, f8, ft0, f4") OF_FIRST("0x43, f8, f8, f3") OF_RESULT("0x46, f16, ft1, f4") \
        OF_BOTH("0x41, f8, f8, f16")
#elif FORM == BOUNDED
#define STEPS_OF_FORM                                                                        \
    STEP("f4", ONE)                                                                          \
    STEP("f6", OFFSET) ".insn r 0x33, 0, 0x42, f5, f4, f4\n" OF_RESULT("0x43, f24, ft0, f3") \
        OF_FIRST("0x41, f24, f24, f6") OF_FIRST("0x46, f24, f24, f5") OF_FIRST("0x45, f8, f24, f4") TIMES_X
#if HAS_X
#define TIMES_X OF_FIRST("0x43, f8, f8, ft1")
#else
#define TIMES_X
#endif
#else
#define STEPS_OF_FORM STEP("f6", OFFSET) OF_RESULT("0x43, f8, ft0, f3") OF_FIRST("0x41, f8, f8, f6")
#endif

/* y = the function of 16 elements of the first stream; the second one gives them again, as often as PASSES says. */
static inline void evaluate(struct streams *streams, float *y, const float *steps) {
    uint32_t bits[BATCH] __attribute__((aligned(8)));
    uint32_t *at = bits, word, next;
    (void)streams;
    __asm__ volatile(STEP("f3", FACTOR) STEPS_OF_FORM SUMS_8(STORE_SUM)
                     : [at] "+&r"(at), [word] "=&r"(word), [next] "=&r"(next)
                     : [each] "r"(GROUP - 1), [steps] "r"(steps), [bits] "r"(bits), [end] "r"(bits + BATCH), [y] "r"(y)
                     : CLOBBERED, "f3", "f4", "f5", "f6", "f7");
}

#else

static inline float result_of(float x, const float *steps) {
    const float t = x * steps[2 * FACTOR], offset = steps[2 * OFFSET];
    float y;
#if HAS_SIGN
    float exponent = t;
#if HAS_TERMS
    const float bound = steps[2 * BEYOND], u = fmaxf(fminf(t, bound), -bound);
    exponent = steps[2 * (ALL - 1)];
    for (int i = ALL - 2; i >= TERMS; i--) exponent = exponent * (u * u) + steps[2 * i];
    exponent *= u;
#endif
    const float d = 1 + power_of_two(fmaxf(-fabsf(exponent), steps[2 * LOWEST]), steps);
    float r = (steps[2 * GUESS + 4] * d + steps[2 * GUESS + 2]) * d + steps[2 * GUESS];
    for (int i = 0; i < 2; i++) r *= 2 - d * r;
    y = copysignf(r - steps[2 * HALF], x) * steps[2 * SCALE] + offset;
#elif FORM == POWER
    y = power_of_two(fminf(fmaxf(t, steps[2 * LOWEST]), steps[2 * BEYOND]), steps);
    (void)offset;
#elif FORM == BROKEN
    y = fminf(x, offset) * steps[2 * FACTOR] + fmaxf(x, offset);
    (void)t;
#elif FORM == BOUNDED
    y = fminf(fmaxf(t + offset, 0), steps[2 * ONE]);
#else
    y = t + offset;
#endif
    return HAS_X ? y * x : y;
}

static inline void evaluate(struct streams *streams, float *y, const float *steps) {
    for (int i = 0; i < BATCH; i += 2) {
        float x[2];
        pair_store(x, stream_next(streams, FIRST));
        for (int j = 0; j < 2; j++) y[i + j] = result_of(x[j], steps);
    }
}

#endif

/* Batches of a row at a multiple of 8 bytes. */
static void evaluate_all(const float *x, float *y, int batches, const float *steps) {
    struct streams streams;
    if (batches <= 0) return;
    STREAM_BEGIN(&streams, FIRST, 1, {(float *)x, 1, {batches * GROUP}, {2}});
#if PASSES > 0
    STREAM_BEGIN(&streams, SECOND, 3, {(float *)x, 1, {GROUP, PASSES, batches}, {2, 0, BATCH}});
#endif
    streams_on();
    for (int i = 0; i < batches; i++) evaluate(&streams, y + i * BATCH, steps);
    streams_off();
}

void KERNEL(const struct unary *k) {
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST], count = k->extent[LAST];
    float steps[2 * ALL] __attribute__((aligned(8))), copy[2 * BATCH] __attribute__((aligned(8)));
    int index[AXES] = {0};
    set_steps(k, steps);
    do {
        const float *const x = (const float *)k->x + row_offset(index, k->x_step);
        float *const y = (float *)k->y + row_offset(index, k->y_step);
        const int direct = x_step == 1 && y_step == 1 && is_paired(x) && is_paired(y) ? count / BATCH * BATCH : 0;
        evaluate_all(x, y, direct / BATCH, steps);
        for (int from = direct; from < count; from += BATCH) {
            const int some = count - from < BATCH ? count - from : BATCH;
            for (int i = 0; i < BATCH; i++) copy[i] = x[(from + (i < some ? i : 0)) * x_step];
            evaluate_all(copy, copy + BATCH, 1, steps);
            for (int i = 0; i < some; i++) y[(from + i) * y_step] = copy[BATCH + i];
        }
    } while (next_row(index, k->extent));
}
