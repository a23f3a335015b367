/* y = (x - zero_point) * scale, bytes to floats.
 *
 * x and y have any strides along six axes. Four elements of dense rows take 4 loads, subtractions, conversions,
 * multiplications and stores: 5 instructions each, which bound it.
 */
#include "pulp_dequantize.h"

#include "pulp_rows.h"
#include "xpulp.h"

/* Four at a time, so that none waits for the one before. */
OUT_OF_LINE void dense_row(float scale, int32_t zero, const X_T *x, Y_T *y, int count) {
    for (; count >= 4; count -= 4, x += 4, y += 4) {
        const int32_t a = x[0] - zero, b = x[1] - zero, c = x[2] - zero, d = x[3] - zero;
        const float e = (float)a, f = (float)b, g = (float)c, h = (float)d;
        y[0] = e * scale, y[1] = f * scale, y[2] = g * scale, y[3] = h * scale;
    }
    XP_UNKNOWN(count);
    for (; count > 0; count--) *y++ = (float)(*x++ - zero) * scale;
}

void KERNEL(const struct pulp_dequantize *k) {
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0}, x_at = 0, y_at = 0;
    do {
        const X_T *const x = (const X_T *)k->x + x_at;
        Y_T *const y = (Y_T *)k->y + y_at;
        if (x_step == 1 && y_step == 1)
            dense_row(*k->scale, *k->zero_point, x, y, k->extent[LAST]);
        else
            for (int i = 0; i < k->extent[LAST]; i++)
                dense_row(*k->scale, *k->zero_point, x + i * x_step, y + i * y_step, 1);
    } while (next_rows(index, k->extent, k->x_step, &x_at, k->y_step, &y_at, 0, 0));
}
