#define X_T A_T
#define W_T B_T
#ifdef B_BITS
#define W_BITS B_BITS
#define W_IS_SIGNED B_IS_SIGNED
#endif
#include "pulp_matmul.h"

#ifdef PARTIAL
static inline void multiply(const struct pulp_matmul *k) {
#else
void KERNEL(const struct pulp_matmul *k) {
#endif
    struct batch at = {{0}, 0, 0, 0};
#ifdef ZEROS
    const struct pulp_product p = with_sums(k->product, k->zeros);
#endif
    do {
        const B_T *const b = (const B_T *)k->b + at.b;
        struct rows r = {.x = (const A_T *)k->a + at.a,
                         .y = (OUT_T *)k->y + at.y,
                         .x_step = k->a_row,
                         .y_step = k->y_row,
                         .count = k->rows};
#ifdef ZEROS
        sum_rows(k->zeros, r, p.depth), sum_filters(&k->product, k->zeros, b, 0, p.filters);
        r.sums = k->zeros->rows;
        product(&p, r, b, 0);
#else
        product(&k->product, r, b, 0);
#endif
    } while (k->batches && next_batch(&at, k->batches));
}
