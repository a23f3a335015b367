#define X_T A_T
#define W_T B_T
#include "pulp_matmul.h"

static void multiply(const struct pulp_matmul *k, const A_T *a, const B_T *b, Y_T *y) {
    int m = 0;
    for (; m + 2 <= k->rows; m += 2, a += 2 * k->a_row, y += 2 * k->y_row) {
        product_2(&k->product, a, a + k->a_row, b, y, y + k->y_row, 0);
    }
    if (m < k->rows) product_1(&k->product, a, b, y, 0);
}

void KERNEL(const struct pulp_matmul *k) {
    for (int i = 0; i < k->batch[0]; i++) {
        for (int j = 0; j < k->batch[1]; j++) {
            for (int l = 0; l < k->batch[2]; l++) {
                for (int h = 0; h < k->batch[3]; h++) {
                    multiply(k, (const A_T *)k->a + i * k->a_batch[0] + j * k->a_batch[1] + l * k->a_batch[2] + h * k->a_batch[3],
                             (const B_T *)k->b + i * k->b_batch[0] + j * k->b_batch[1] + l * k->b_batch[2] + h * k->b_batch[3],
                             (Y_T *)k->y + i * k->y_batch[0] + j * k->y_batch[1] + l * k->y_batch[2] + h * k->y_batch[3]);
                }
            }
        }
    }
}
