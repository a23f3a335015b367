/* y = FUNCTION(a, b), element by element.
 *
 * All operands have any strides along six axes. An element is two loads, the function and a store: loads and stores
 * bound it, or the function.
 */
#include "pairwise.h"

#include <math.h>

#include "loops.h"

#ifdef A_IS_FLOAT
#define kept(a) isnan(a) /* a NaN stays */
#else
#define kept(a) 0
#endif
#define larger(a, b) ((a) > (b) || kept(a) ? (a) : (b))
#define smaller(a, b) ((a) < (b) || kept(a) ? (a) : (b))
#define power(a, b) powf(a, b)
#define equal(a, b) ((a) == (b))
#define differ(a, b) ((a) != (b))
#define less(a, b) ((a) < (b))
#define at_most(a, b) ((a) <= (b))
#define greater(a, b) ((a) > (b))
#define at_least(a, b) ((a) >= (b))
#define both(a, b) ((a) && (b))
#define either(a, b) ((a) || (b))
#define bits_of_both(a, b) ((a) & (b))
#define bits_of_either(a, b) ((a) | (b))
#define bits_that_differ(a, b) ((a) ^ (b))
/* Arithmetic is modulo 2^64; a divisor of 0 gives 0. */
#define sum(a, b) ((uint64_t)(a) + (uint64_t)(b))
#define difference(a, b) ((uint64_t)(a) - (uint64_t)(b))
#define product(a, b) ((uint64_t)(a) * (uint64_t)(b))
#define is_minus_one(b) ((B_T) - 1 < (B_T)1 && (b) == (B_T) - 1) /* whose quotient may leave the type */
#define quotient(a, b) ((b) == 0 ? 0 : is_minus_one(b) ? difference(0, a) : (uint64_t)((a) / (b)))
/* remainder_of has the sign of the dividend, modulo that of the divisor. */
#ifdef A_IS_FLOAT
#define remainder_of(a, b) fmodf(a, b)
static inline float modulo(float a, float b) {
    const float rest = fmodf(a, b);
    return rest == 0 ? copysignf(0, b) : (rest < 0) != (b < 0) ? rest + b : rest;
}
#else
#define remainder_of(a, b) ((b) == 0 || is_minus_one(b) ? 0 : (int64_t)((a) % (b)))
static inline int64_t modulo(A_T a, B_T b) {
    const int64_t rest = remainder_of(a, b), divisor = (int64_t)b;
    return rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest;
}
/* By a negative number of places, or all there are, only signs are left. */
#define is_within(b) ((uint64_t)(b) < 8 * sizeof(A_T))
#define shifted_left(a, b) (is_within(b) ? (uint64_t)(a) << (b) : 0)
#define shifted_right(a, b) ((a) >> (is_within(b) ? (b) : (B_T)(8 * sizeof(A_T) - 1)) >> (is_within(b) ? 0 : 1))
#endif

void KERNEL(const struct pairwise *k) {
    const int a_step = k->a_step[LAST], b_step = k->b_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const A_T *const a = (const A_T *)k->a + row_offset(index, k->a_step);
        const B_T *const b = (const B_T *)k->b + row_offset(index, k->b_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            const A_T left = a[i * a_step];
            const B_T right = b[i * b_step];
            y[i * y_step] = (Y_T)FUNCTION(left, right);
        }
    } while (next_row(index, k->extent));
}
