/* y = clip((clip((sum over i of x[i])*mul + add) >> shift) * a_mul + b*b_mul + offset) >> result_shift).
 *
 * x is [terms, ...] of int32, b and y are bytes, any strides along three axes of results; mul and add have one entry
 * per channel, the last axis, or are the same for all. Dense rows take, for two results, 4 instructions a term and
 * those of pulp_terms.h behind them: instructions bound it.
 */
#include "pulp_residual_sum.h"

typedef struct pulp_residual_sum arguments;
enum { HAS_ADDEND = 1 };
#include "pulp_terms.h"

static inline struct addend addend_of(const arguments *k) {
    return (struct addend){k->b,      k->b_step,       k->a_mul,      k->b_mul,
                           k->offset, k->result_shift, k->result_low, k->result_high};
}

void KERNEL(const struct pulp_residual_sum *k) {
    add_terms(k);
}
