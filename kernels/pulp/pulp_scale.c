/* y = epilogue(a + b), or with PRODUCT epilogue((a - a_zero_point) * (b - b_zero_point)), of bytes, element by element;
 * with ZERO_POINTS not both of these are zero.
 *
 * All operands have any strides along six axes. The inner loop takes 5 instructions to load, combine and store, 6 with
 * zero points, and STAGES_OF_1 for the requantisation (pulp_finish.h), 3 to 7: instructions bound it.
 */
#include "pulp_scale_rows.h"

void KERNEL(const struct pulp_scale *k) {
    scale_rows(k);
}
