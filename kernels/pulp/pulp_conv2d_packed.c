/* The convolution of pulp_conv2d.c with filters whose elements have 1 to 7 bits, in words whose bytes are lanes.
 *
 * x and y are channels-last images of bytes, w is [filters, kernel_h, kernel_w, channels] packed. Of 4 bits, a loop
 * takes 32 instructions for 64 products of two positions by four filters, of 2 bits 68 for 128 (see pulp_words.h):
 * instructions bound it.
 */
#define OUT_T Y_T
enum { IS_PARTIAL = 0 };

#include "pulp_packed.h"
#include "pulp_convolve.h"

void KERNEL(const struct pulp_conv2d *k) {
    convolve(k);
}
