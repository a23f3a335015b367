#define PARTIAL
#include "pulp_matmul.c"
#include "pulp_matmul_sums.h"

void KERNEL(const struct pulp_matmul_sums *k) {
    int32_t *const sums = (int32_t *)k->part.y;
    if (k->kept.is_first) clear_sums(&k->kept, sums, k->part.product.filters);
    multiply(&k->part);
    if (k->kept.is_last) finish_sums(&k->kept, sums, &k->part.product);
}
