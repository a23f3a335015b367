/* sums += the convolution of pulp_conv2d.c of some of the channels of one image; behind the last y = epilogue(sums).
 *
 * x is [height, width, channels], w [filters, kernel_h, kernel_w, channels], sums and y [out_height, out_width,
 * filters], int32 and Y_T. As pulp_conv2d.c, with 16 loads, additions and stores of sums for each block of four
 * positions by four filters: instructions bound it.
 */
#define OUT_T int32_t
enum { IS_PARTIAL = 1 };

#include "pulp_bytes.h"
#include "pulp_convolve.h"
#include "pulp_kept_sums.h"
#include "pulp_conv2d_sums.h"

void KERNEL(const struct pulp_conv2d_sums *k) {
    int32_t *const sums = (int32_t *)k->part.y;
    if (k->kept.is_first) clear_sums(&k->kept, sums, k->part.product.filters);
    convolve(&k->part);
    if (k->kept.is_last) finish_sums(&k->kept, sums, &k->part.product);
}
