#define PARTIAL
#include "pulp_conv2d.c"
#include "pulp_conv2d_sums.h"

void KERNEL(const struct pulp_conv2d_sums *k) {
    int32_t *const sums = (int32_t *)k->part.y;
    if (k->kept.is_first) clear_sums(&k->kept, sums, k->part.product.filters);
    convolve_all(&k->part);
    if (k->kept.is_last) finish_sums(&k->kept, sums, &k->part.product);
}
