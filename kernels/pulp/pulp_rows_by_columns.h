/* The loop of matrix products over batches. */
#ifndef DEEPLOY_PULP_ROWS_BY_COLUMNS_H
#define DEEPLOY_PULP_ROWS_BY_COLUMNS_H

#include "pulp_matmul.h"
#include "pulp_multiply.h"
#include "pulp_row_sums.h"

static inline void multiply(const struct pulp_matmul *k) {
    struct batch at = {{0}, 0, 0, 0};
    const struct pulp_product with_zeros = ZEROS ? with_sums(k->product, k->zeros) : k->product;
    const struct pulp_product *const p = ZEROS ? &with_zeros : &k->product;
    do {
        const W_T *const b = (const W_T *)k->b + at.b;
        struct rows r;
        set_rows(&r, (const X_T *)k->a + at.a, k->a_row, (OUT_T *)k->y + at.y, k->y_row, k->rows);
        if (ZEROS) {
            sum_rows(k->zeros, &r, p->depth), sum_filters(&k->product, k->zeros, b, 0, p->filters);
            r.sums = k->zeros->rows;
        }
        product(p, &r, b, 0);
    } while (k->batches && next_batch(&at, k->batches));
}

#endif
