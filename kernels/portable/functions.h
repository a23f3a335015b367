/* Functions of a float x with two parameters, by the names that declarations give them; x is evaluated several times.
 */
#ifndef DEEPLOY_FUNCTIONS_H
#define DEEPLOY_FUNCTIONS_H

#include <math.h>

#include "exponentials.h"

/* x between 0 and 1; what is no number stays so. */
static inline float within_unit(float x) {
    return x > 1 ? 1 : x < 0 ? 0 : x;
}

#define leaky_relu(x, a, b) ((x) < 0 ? (a) * (x) : (x))
#define sigmoid(x, a, b) (1 / (1 + exp_float(-(x))))
#define hyperbolic_tangent(x, a, b) tanh_float(x)
#define scaled_tanh(x, a, b) ((a) * tanh_float((b) * (x)))
#define affine(x, a, b) ((a) * (x) + (b))
#define hard_swish(x, a, b) ((x) * fminf(fmaxf((x) / 6 + 0.5f, 0), 1))
#define hard_sigmoid(x, a, b) within_unit((a) * (x) + (b))
#define elu(x, a, b) ((x) < 0 ? (a) * expm1_float(x) : (x))
#define selu(x, a, b) ((b) * ((x) < 0 ? (a) * expm1_float(x) : (x)))
#define celu(x, a, b) ((x) < 0 ? (a) * expm1_float((x) / (a)) : (x))
#define thresholded_relu(x, a, b) ((x) > (a) ? (x) : 0)
#define shrink(x, a, b) ((x) < -(a) ? (x) + (b) : (x) > (a) ? (x) - (b) : 0)
#define softplus(x, a, b) (fmaxf(x, 0) + log1p_float(exp_float(-fabsf(x))))
#define softsign(x, a, b) ((x) / (1 + fabsf(x)))
#define gelu(x, a, b) ((x) * 0.5f * (1 + erf_float((x) * 0.707106781f)))
#define gelu_tanh(x, a, b) ((x) * 0.5f * (1 + tanh_float(0.797884561f * ((x) + 0.044715f * (x) * (x) * (x)))))
#define silu(x, a, b) ((x) / (1 + exp_float(-(a) * (x))))
#define mish(x, a, b) ((x) * tanh_float(softplus(x, a, b)))
#define natural_exponential(x, a, b) exp_float(x)
#define natural_logarithm(x, a, b) log_float(x)
#define square_root(x, a, b) sqrtf(x)
#define error_function(x, a, b) erf_float(x)
#define absolute(x, a, b) fabsf(x)
#define negative(x, a, b) (-(x))
#define inverse(x, a, b) (1 / (x))
#define power(x, a, b) powf(x, a)
#define downwards(x, a, b) floorf(x)
#define upwards(x, a, b) ceilf(x)
#define half_even(x, a, b) rintf(x)
#define sine(x, a, b) sinf(x)
#define cosine(x, a, b) cosf(x)
#define tangent(x, a, b) tanf(x)
#define arc_sine(x, a, b) asinf(x)
#define arc_cosine(x, a, b) acosf(x)
#define arc_tangent(x, a, b) atanf(x)
#define hyperbolic_sine(x, a, b) sinhf(x)
#define hyperbolic_cosine(x, a, b) coshf(x)
#define area_sine(x, a, b) asinhf(x)
#define area_cosine(x, a, b) acoshf(x)
#define area_tangent(x, a, b) atanhf(x)
#define sign_of(x, a, b) ((x) > 0 ? 1.0f : (x) < 0 ? -1.0f : (x))

#endif
