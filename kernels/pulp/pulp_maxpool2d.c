#include "../portable/maxpool2d.h"

#include "pulp_window.h"
#include "xpulp.h"

enum { IS_SIGNED = (X_T)-1 < 0, LOWEST = IS_SIGNED ? -128 : 0 };

static inline uint32_t larger4(uint32_t a, uint32_t b) {
    return IS_SIGNED ? xp_max4(a, b) : xp_max4u(a, b);
}

/* Four channels of `count` taps that lie `step` apart, at least one. */
static inline uint32_t larger_row(const X_T *x, int step, int count, uint32_t best) {
#ifdef XPULP_INSN
    __asm__ volatile(
        ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[n], 4\n.insn r 0x0b, 7, 0x10, t0, %[x], %[step]\n"
        ".insn r 0x57, 1, %[max], %[best], %[best], t0\n.option pop\n"
        : [x] "+r"(x), [best] "+r"(best)
        : [n] "r"(count), [step] "r"(step), [max] "i"(IS_SIGNED ? XP_MAX4 : XP_MAX4U)
        : "t0", "memory");
#else
    for (int i = 0; i < count; i++) best = larger4(best, xp_load(x + i * step));
#endif
    return best;
}

/* One position of y, whose first tap inside the image is `x`. */
OUT_OF_LINE void position(const struct maxpool2d *k, const X_T *x, int rows, int columns, Y_T *y) {
    const int channels = k->channels, row = k->dilation_h * k->x_row, column = k->dilation_w * k->x_column;
    for (int next = 0; next < channels && channels >= 4; next += 4) {
        const int first = next + 4 <= channels ? next : channels - 4; /* the last four may begin earlier */
        const X_T *at = x + first;
        uint32_t best = (LOWEST & 255) * 0x01010101u;
        for (int i = columns ? rows : 0; i > 0; i--, at += row) best = larger_row(at, column, columns, best);
        xp_store(y + first, best);
    }
    for (int c = 0; c < channels && channels < 4; c++) {
        int best = LOWEST;
        for (int i = 0; i < rows * columns; i++) best = xp_max(best, x[i / columns * row + i % columns * column + c]);
        y[c] = (Y_T)best;
    }
}

void KERNEL(const struct maxpool2d *k) {
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + n * k->x_batch;
        for (int oh = 0; oh < k->out_height; oh++) {
            const int ih = oh * k->stride_h - k->top;
            const struct taps rows = taps_inside(ih, k->dilation_h, k->kernel_h, k->height);
            Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row;
            for (int ow = 0; ow < k->out_width; ow++, y += k->y_column) {
                const int iw = ow * k->stride_w - k->left;
                const struct taps columns = taps_inside(iw, k->dilation_w, k->kernel_w, k->width);
                const int is_empty = rows.count == 0 || columns.count == 0;
                const int first =
                    (ih + rows.first * k->dilation_h) * k->x_row + (iw + columns.first * k->dilation_w) * k->x_column;
                position(k, is_empty ? image : image + first, rows.count, columns.count, y);
            }
        }
    }
}
