#define X_T A_T
#define W_T B_T
#include "pulp_matmul.h"

void KERNEL(const struct pulp_matmul *k) {
    struct batch at = {{0}, 0, 0, 0};
    do {
        const struct rows r = {(const A_T *)k->a + at.a, (Y_T *)k->y + at.y, k->a_row, k->y_row, k->rows};
        product(&k->product, r, (const B_T *)k->b + at.b, 0);
    } while (k->batches && next_batch(&at, k->batches));
}
