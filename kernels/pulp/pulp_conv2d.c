/* y[n, oh, ow, k] = epilogue(sum over fh, fw, c of x[n, oh*sh + fh*dh - top, ow*sw + fw*dw - left, c] * w[k, fh, fw,
 * c]), of bytes; what lies outside x is its zero point.
 *
 * x and y are channels-last images, w is [groups * filters, kernel_h, kernel_w, channels]. Windows are rows of a
 * product (pulp_bytes.h): 24 instructions for 64 products in blocks of four positions by four filters, 0.375 each, so
 * that eight cores do at most 21.3 a cycle. Instructions bound it; copies of windows that do not lie in whole words are
 * 4 for 8 bytes, and weigh where filters are few.
 */
#define OUT_T Y_T
enum { IS_PARTIAL = 0 };

#include "pulp_bytes.h"
#include "pulp_convolve.h"

void KERNEL(const struct pulp_conv2d *k) {
    convolve(k);
}
