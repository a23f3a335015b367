/* y[m, n] = epilogue(sum over k of a[m, k] * b[n, k]), bytes: see pulp_multiply.h.
 *
 * a is [batch, rows, depth], b [batch, columns, depth], y [batch, rows, columns]; the depth of a and b and the columns
 * of y are dense. The inner loop takes 24 instructions for 64 products where a depth of whole words leaves four rows,
 * 0.375 each: 21.3 products a cycle on eight cores. What bounds it is instructions: 8 of the 24 load.
 */
#define X_T A_T
#define W_T B_T
#define OUT_T Y_T
enum { IS_PARTIAL = 0 };

#include "pulp_bytes.h"
#include "pulp_rows_by_columns.h"

void KERNEL(const struct pulp_matmul *k) {
    multiply(k);
}
