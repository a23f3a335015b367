/* Zero points of both operands of a product of bytes. The sum of (x - x_zero) * (w - w_zero) over the depth is the sum
 * of x * w, less w_zero times the sum of the row of x, less x_zero times the sum of the row of w, plus the depth times
 * both zero points. What belongs to a row of x is added to its accumulators, what belongs to a row of w takes the place
 * of the bias: pulp_row_sums.h adds both up. */
#ifndef DEEPLOY_PULP_ZEROS_H
#define DEEPLOY_PULP_ZEROS_H

#include <stdint.h>

struct pulp_zeros {
    int x, w;                /* zero points */
    int32_t *rows, *filters; /* the calling core's own: room for a sum of every row of x and of w */
};

#endif
