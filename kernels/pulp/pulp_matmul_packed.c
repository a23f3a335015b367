/* y[m, n] = epilogue(sum over k of a[m, k] * b[n, k]) of bytes a and elements of b of 1 to 7 bits, in words whose bytes
 * are lanes: see pulp_words.h, which counts the instructions of the inner loop.
 *
 * a is [rows, depth], b [columns, depth] packed, y [rows, columns]. Of 4 bits a loop takes 32 instructions for 64
 * products, of 2 bits 68 for 128: instructions bound it, a third of which unpack, or bytes of b where these come from
 * L2.
 */
#define X_T A_T
#define W_T B_T
#define W_BITS B_BITS
#define W_IS_SIGNED B_IS_SIGNED
#define OUT_T Y_T
enum { IS_PARTIAL = 0 };

#include "pulp_packed.h"
#include "pulp_rows_by_columns.h"

void KERNEL(const struct pulp_matmul *k) {
    multiply(k);
}
