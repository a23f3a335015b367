/* Sum of two operands of bytes, each by its own factor: clip((a*mul_a + b*mul_b + add) >> shift), in 32 bits.
 *
 * An instance defines SUM_NARROW where no value is larger, and SUM_HALVES where factors and add are cut into halves of
 * 16 bits, lower ones unsigned: the sum of the lower products is carried into that of the upper ones, and both fit. */
#ifndef DEEPLOY_SCALED_SUM_H
#define DEEPLOY_SCALED_SUM_H

#include <stdint.h>

struct scaled_sum {
    const void *a;
    const void *b;
    void *y;
    int extent[6], a_step[6], b_step[6], y_step[6];
    int32_t a_mul, b_mul, add; /* or their upper halves */
    int32_t a_low, b_low, add_low;
    int shift; /* of the whole, or of the upper half */
    int32_t low, high;
};

#ifdef KERNEL
static inline Y_T sum_of(const struct scaled_sum *k, int32_t a, int32_t b) {
    int32_t sum = k->add;
    if (SUM_HALVES) sum += (k->add_low + a * k->a_low + b * k->b_low) >> 16;
    sum = (sum + a * k->a_mul + b * k->b_mul) >> k->shift;
    sum = sum < k->low ? k->low : sum;
    return (Y_T)(sum > k->high ? k->high : sum);
}
#endif

#endif
