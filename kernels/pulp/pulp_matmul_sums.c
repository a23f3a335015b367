/* sums[m, n] += sum over a part of k of a[m, k] * b[n, k], of bytes; behind the last part y = epilogue(sums).
 *
 * a is [rows, depth], b [columns, depth], sums and y [rows, columns], int32 and Y_T. As pulp_matmul.c, with 16 loads,
 * additions and stores of sums for each block of four by four: instructions bound it.
 */
#define X_T A_T
#define W_T B_T
#define OUT_T int32_t
enum { IS_PARTIAL = 1 };

#include "pulp_bytes.h"
#include "pulp_rows_by_columns.h"
#include "pulp_kept_sums.h"
#include "pulp_matmul_sums.h"

void KERNEL(const struct pulp_matmul_sums *k) {
    int32_t *const sums = (int32_t *)k->part.y;
    if (k->kept.is_first) clear_sums(&k->kept, sums, k->part.product.filters);
    multiply(&k->part);
    if (k->kept.is_last) finish_sums(&k->kept, sums, &k->part.product);
}
