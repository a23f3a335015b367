#include "clip.h"

#include "loops.h"

void KERNEL(const struct clip *k) {
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST];
#ifdef ACC_IS_FLOAT
    const float low = k->low_f, high = k->high_f;
#else
    const X_T low = (X_T)k->low, high = (X_T)k->high;
#endif
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            const X_T value = x[i * x_step], least = value < low ? low : value; /* no branch */
            y[i * y_step] = least > high ? high : least;
        }
    } while (next_row(index, k->extent));
}
