/* y[n, oh, ow, c] = ((a*x[n, i, j, c] + b*x[n, i, j+1, c]) + c*x[n, i+1, j, c]) + d*x[n, i+1, j+1, c], of floats, with
 * the products of a weight of the column and one of the row as a to d.
 *
 * x and y are channels-last images; tables name i and j, and hold the weights. A channel takes 4 loads, 4
 * multiplications, 3 additions and a store, which bound it.
 */
#include "interpolate.h"

#include <stddef.h>

/* The neighbours of a place along an axis, and their weights. */
struct neighbours {
    int first, next;
    float before, behind;
};

static inline struct neighbours neighbours_of(const float *entry, int size) {
    int first = (int)entry[0];
    if (first >= size) first = size - 1;
    return (struct neighbours){first, first + 1 < size ? first + 1 : first, entry[1], entry[2]};
}

void KERNEL(const struct interpolate *k) {
    const int channels = k->channels;
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + (ptrdiff_t)n * k->x_batch;
        for (int oh = 0; oh < k->out_height; oh++) {
            const struct neighbours i = neighbours_of((const float *)k->rows + 3 * oh, k->height);
            const X_T *const up = image + (ptrdiff_t)i.first * k->x_row, *const down =
                                                                             image + (ptrdiff_t)i.next * k->x_row;
            Y_T *y = (Y_T *)k->y + (ptrdiff_t)n * k->y_batch + (ptrdiff_t)oh * k->y_row;
            for (int ow = 0; ow < k->out_width; ow++, y += k->y_column) {
                const struct neighbours j = neighbours_of((const float *)k->columns + 3 * ow, k->width);
                const int left = j.first * k->x_column, right = j.next * k->x_column;
                const float a = j.before * i.before, b = j.behind * i.before, c = j.before * i.behind,
                            d = j.behind * i.behind;
                const X_T *const p = up + left, *const q = up + right, *const r = down + left, *const s = down + right;
                for (int at = 0; at < channels; at++) y[at] = a * p[at] + b * q[at] + c * r[at] + d * s[at];
            }
        }
    }
}
