#include "stretch.h"

void KERNEL(const struct stretch *k) {
    const X_T *x = (const X_T *)k->x;
    const W_T *w = (const W_T *)k->w;
    Y_T *y = (Y_T *)k->y;
    for (int r = 0; r < k->rows * k->factor; r++) {
        for (int n = 0; n < k->columns; n++) {
            ACC_T acc = 0;
            for (int i = 0; i < k->depth; i++) acc += x[r / k->factor * k->depth + i] * w[i * k->columns + n];
            y[r * k->columns + n] = acc;
        }
    }
}
