/* y = epilogue(x), of bytes, element by element: a requantisation by one multiplier for all.
 *
 * Both have any strides along six axes. The inner loop takes 2 instructions to load and store, and STAGES_OF_1 for the
 * requantisation (pulp_finish.h), 3 to 7: instructions bound it.
 */
#define A_T X_T
#define B_T X_T
enum { PRODUCT = 0, ZERO_POINTS = 0 };

#include "pulp_scale_rows.h"

void KERNEL(const struct pulp_scale *k) {
    scale_rows(k);
}
