/* y[0, 0, ow, k] = epilogue(sum over fw, c of x[0, 0, ow*sw + fw, c] * w[k, 0, fw, c]), of bytes, for windows of one
 * line inside of it.
 *
 * x is channels-last, so that a window is a dense run, and windows are rows of a matrix that overlap: a product of
 * matrices (pulp_matmul.c), with its inner loop and its bound, without anything to set up for windows.
 */
#define OUT_T Y_T
enum { IS_PARTIAL = 0 };

#include "pulp_bytes.h"
#include "pulp_rows_by_columns.h"

void KERNEL(const struct pulp_matmul *k) {
    multiply(k);
}
