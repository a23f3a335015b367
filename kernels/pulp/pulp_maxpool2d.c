/* y[n, oh, ow, c] = the maximum over taps of x[n, oh*sh + fh*dh - top, ow*sw + fw*dw - left, c], of bytes; without taps
 * inside the image the least byte.
 *
 * x and y are channels-last images. Eight channels take 4 instructions a tap, 2 of them loads: instructions bound it.
 */
#include "../portable/maxpool2d.h"

#include "pulp_window.h"
#include "xpulp.h"

enum { IS_SIGNED = (X_T)-1 < 0, LOWEST = IS_SIGNED ? -128 : 0 };

static inline uint32_t larger4(uint32_t a, uint32_t b) {
    return IS_SIGNED ? xp_max4(a, b) : xp_max4u(a, b);
}

/* Taps of a window that are inside the image, at least one. */
struct inside {
    int rows, columns, row, column; /* taps, and their distances */
};

/* y at `first` and at `second`: four channels each. The rows are the outer hardware loop; 4 instructions for a word
 * each of a tap. */
static inline void pair(struct inside t, const X_T *x, int first, int second, Y_T *y) {
    uint32_t a = (LOWEST & 255) * 0x01010101u, b = a;
    const X_T *p = x + first, *q = x + second;
    XP_BLOCK(
        BEGIN
        ".insn i 0x7b, 4, x1, %[rows], 14\n.insn i 0x7b, 4, x0, %[columns], 8\n"
        ".insn r 0x0b, 7, 0x10, t0, %[p], %[column]\n.insn r 0x0b, 7, 0x10, t1, %[q], %[column]\n"
        ".insn r 0x57, 1, %[max], %[a], %[a], t0\n.insn r 0x57, 1, %[max], %[b], %[b], t1\n"
        "add %[p], %[p], %[next]\nadd %[q], %[q], %[next]\n" END : [p] "+r"(p),
        [q] "+r"(q), [a] "+r"(a), [b] "+r"(b) : [rows] "r"(t.rows), [columns] "r"(t.columns), [column] "r"(t.column),
        [next] "r"(t.row - t.columns * t.column), [max] "i"(IS_SIGNED ? XP_MAX4 : XP_MAX4U) : "t0", "t1", "memory");
    for (int i = 0; i < t.rows && !XPULP_INSN; i++, p += t.row, q += t.row) {
        for (int j = 0; j < t.columns; j++) {
            a = larger4(a, xp_load(p + j * t.column));
            b = larger4(b, xp_load(q + j * t.column));
        }
    }
    xp_store(y + first, a), xp_store(y + second, b);
}

/* One position of y, whose first tap inside the image is `x`. The last words of channels may begin earlier. */
OUT_OF_LINE void position(struct inside t, const X_T *x, int channels, Y_T *y) {
    const int last = channels - 4;
    for (int first = 0; first < channels && last >= 0; first += 8)
        pair(t, x, first < last ? first : last, first + 4 < last ? first + 4 : last, y);
    for (int c = 0; c < channels && last < 0; c++) {
        int best = LOWEST;
        for (int i = 0; i < t.rows; i++)
            for (int j = 0; j < t.columns; j++) best = xp_max(best, x[i * t.row + j * t.column + c]);
        y[c] = (Y_T)best;
    }
}

void KERNEL(const struct maxpool2d *k) {
    struct inside t = {0, 0, k->dilation_h * k->x_row, k->dilation_w * k->x_column};
    const int channels = k->channels, reach = (k->kernel_w - 1) * k->dilation_w;
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + n * k->x_batch;
        for (int oh = 0; oh < k->out_height; oh++) {
            const int ih = oh * k->stride_h - k->top;
            const struct taps rows = taps_inside(ih, k->dilation_h, k->kernel_h, k->height);
            const X_T *const row = image + ih * k->x_row + rows.first * t.row;
            Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row;
            int iw = -k->left;
            for (int ow = 0; ow < k->out_width; ow++, y += k->y_column, iw += k->stride_w) {
                struct taps columns = {0, k->kernel_w};
                if (iw < 0 || iw + reach >= k->width) columns = taps_inside(iw, k->dilation_w, k->kernel_w, k->width);
                t.rows = rows.count, t.columns = columns.count;
                if (rows.count && columns.count)
                    position(t, row + iw * k->x_column + columns.first * t.column, channels, y);
                else
                    for (int c = 0; c < channels; c++) y[c] = (Y_T)LOWEST;
            }
        }
    }
}
