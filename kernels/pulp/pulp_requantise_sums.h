/* Requantisation of 32-bit sums of images whose channels lie last, as an accelerator leaves them; cores share the
 * channels out. */
#ifndef PULP_REQUANTISE_SUMS_H
#define PULP_REQUANTISE_SUMS_H

#include <stdint.h>

enum { REQUANTISE_SUMS_AXES = 3 };

struct pulp_requantise_sums {
    const int32_t *sums;
    void *y;
    int core, cores;
    int channels, extent[REQUANTISE_SUMS_AXES];
    int sums_step[REQUANTISE_SUMS_AXES], y_step[REQUANTISE_SUMS_AXES]; /* in elements */
    /* Of every channel the factor and, above it, a limit; the summand and, above it, the bits of the factor's lower
     * part (5), the shift (5), and a centre (22), which is added to sums before they are limited. A limit of 2^31 - 2:
     * neither is needed. A limit of -1: the channel needs 64 bits, of which its summand is a number, and `shift` its
     * shift. Below that it is -2 less the limit: the summand leaves no room for what else may be in a register. */
    const int64_t *mul, *add;
    int shift;
    int32_t low, high;
    const void *table; /* of outputs, for requantised values from `low` on; none without EPILOGUE_LOOKUP */
};

#endif
