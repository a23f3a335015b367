#include "own_matmul.h"

void KERNEL(const struct own_matmul *k) {
    for (int m = 0; m < k->rows; m++) {
        const A_T *const a = (const A_T *)k->a + m * k->a_row;
        for (int n = 0; n < k->columns; n++) {
            const B_T *const b = (const B_T *)k->b + n * k->b_row;
            ACC_T sum = 0;
            for (int i = 0; i < k->depth; i++) sum += a[i] * b[i];
            ((Y_T *)k->y)[m * k->y_row + n] = finish(sum, &k->epilogue, n); /* bias and requantisation of column n */
        }
    }
}
