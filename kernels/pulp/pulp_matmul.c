#define X_T A_T
#define W_T B_T
#include "pulp_matmul.h"

static inline void multiply(const struct pulp_matmul *k, const A_T *a, const B_T *b, Y_T *y) {
    product(&k->product, (struct rows){a, y, k->a_row, k->y_row, k->rows}, b, 0);
}

void KERNEL(const struct pulp_matmul *k) {
    for (int i = 0; i < k->batch[0]; i++) {
        for (int j = 0; j < k->batch[1]; j++) {
            for (int l = 0; l < k->batch[2]; l++) {
                for (int h = 0; h < k->batch[3]; h++) {
                    multiply(
                        k,
                        (const A_T *)k->a + i * k->a_batch[0] + j * k->a_batch[1] + l * k->a_batch[2] +
                            h * k->a_batch[3],
                        (const B_T *)k->b + i * k->b_batch[0] + j * k->b_batch[1] + l * k->b_batch[2] +
                            h * k->b_batch[3],
                        (Y_T *)k->y + i * k->y_batch[0] + j * k->y_batch[1] + l * k->y_batch[2] + h * k->y_batch[3]);
                }
            }
        }
    }
}
