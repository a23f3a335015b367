/* Operands of the epilogues of the cluster's kernels; pulp_finish.h says what becomes of sums. */
#ifndef DEEPLOY_PULP_EPILOGUE_H
#define DEEPLOY_PULP_EPILOGUE_H

#include <stdint.h>

/* Operands of the stages: one value per channel, each. The steps say so, too. */
struct pulp_epilogue {
    const void *bias;
    const void *mul;
    const void *add;
    const void *table; /* of outputs, for requantised values from `low` on */
    int bias_step, mul_step, add_step;
    int shift;
    int32_t low, high;
};

/* What the compiler made of a requantisation. */
struct pulp_requantisation {
    int32_t limit;
    int left, bits, shift;
    int32_t mul, upper, add; /* of all channels, with REQUANT_ONE; mul and upper are the parts of a split factor */
};

#endif
