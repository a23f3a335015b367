/* Windows over a channels-last image of floats, four channels at a time. Before this is included, `arguments` is the
 * struct of the kernel, FIRST what the taps of a channel are added to, WITH_TAP the instruction that adds one, and
 *   float with_tap(float before, float x)            does the same;
 *   int count_of(const arguments *, int taps)        is what an output divides by, at least 1.
 * The kernel defines finish_channels, which is declared here.
 */
#ifndef DEEPLOY_PULP_POOL_FLOATS_H
#define DEEPLOY_PULP_POOL_FLOATS_H

#include "pulp_window.h"
#include "xpulp.h"

/* Taps of a window that are inside the image, their distances, and what an output divides by: divisions take long. */
struct window {
    int rows, columns, row, column;
    int count;
    float inverse;
};

static inline void finish_channels(const arguments *k, const struct window *w, const float *values, int channel,
                                   int count, float *y);

/* Four channels of the taps from `x` on, of which there is one at least. */
static inline void add_taps(const struct window *w, const float *x, float *to) {
    const int column = w->column * (int)sizeof *x, skip = (w->row - w->columns * w->column) * (int)sizeof *x;
    float a = FIRST, b = FIRST, c = FIRST, d = FIRST;
    XP_BLOCK(BEGIN ".insn i 0x7b, 4, x1, %[rows], 2*12\n" LOOP(
                 "%[columns]", 9) "flw ft0, 0(%[x])\nflw ft1, 4(%[x])\nflw ft2, 8(%[x])\nflw ft3, 12(%[x])\n" WITH_TAP
                                  " %[a], %[a], ft0\n" WITH_TAP " %[b], %[b], ft1\n" WITH_TAP
                                  " %[c], %[c], ft2\n" WITH_TAP
                                  " %[d], %[d], ft3\n"
                                  "add %[x], %[x], %[column]\nadd %[x], %[x], %[skip]\nnop\n" END : [a] "+f"(a),
             [b] "+f"(b), [c] "+f"(c), [d] "+f"(d), [x] "+r"(x) : [rows] "r"(w->rows), [columns] "r"(w->columns),
             [column] "r"(column), [skip] "r"(skip) : "ft0", "ft1", "ft2", "ft3", "memory");
    for (int i = 0; i < w->rows && !XPULP_INSN; i++) {
        for (int j = 0; j < w->columns; j++) {
            const float *const tap = x + i * w->row + j * w->column;
            a = with_tap(a, tap[0]), b = with_tap(b, tap[1]), c = with_tap(c, tap[2]), d = with_tap(d, tap[3]);
        }
    }
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

/* One position of y, which sees some tap. The last four channels may begin earlier. */
OUT_OF_LINE void position(const arguments *k, const struct window *given, const float *x, float *y) {
    const int channels = k->channels;
    struct window w = *given;
    if (w.row == w.columns * w.column) w.columns *= w.rows, w.rows = 1; /* rows that follow each other are one */
    for (int next = 0; next < channels && channels >= 4; next += 4) {
        const int first = next + 4 <= channels ? next : channels - 4;
        float values[4];
        add_taps(&w, x + first, values);
        finish_channels(k, &w, values, first, 4, y + first);
    }
    for (int c = 0; c < channels && channels < 4; c++) {
        float value = FIRST;
        for (int i = 0; i < w.rows; i++)
            for (int j = 0; j < w.columns; j++) value = with_tap(value, x[i * w.row + j * w.column + c]);
        finish_channels(k, &w, &value, c, 1, y + c);
    }
}

static inline void over_windows(const arguments *k) {
    struct window w = {0, 0, k->dilation_h * k->x_row, k->dilation_w * k->x_column, 0, 0};
    for (int n = 0; n < k->batch; n++) {
        const float *const image = (const float *)k->x + n * k->x_batch;
        for (int oh = 0; oh < k->out_height; oh++) {
            const int ih = oh * k->stride_h - k->top;
            const struct taps rows = taps_inside(ih, k->dilation_h, k->kernel_h, k->height);
            float *y = (float *)k->y + n * k->y_batch + oh * k->y_row;
            for (int ow = 0; ow < k->out_width; ow++, y += k->y_column) {
                const int iw = ow * k->stride_w - k->left;
                const struct taps columns = taps_inside(iw, k->dilation_w, k->kernel_w, k->width);
                const int at =
                    (ih + rows.first * k->dilation_h) * k->x_row + iw * k->x_column + columns.first * w.column;
                const float none = FIRST;
                const int count = count_of(k, rows.count * columns.count);
                w.rows = rows.count, w.columns = columns.count;
                if (count != w.count) w.count = count, w.inverse = 1.0f / (float)count;
                if (w.rows && w.columns)
                    position(k, &w, image + at, y);
                else
                    for (int c = 0; c < k->channels; c++) finish_channels(k, &w, &none, c, 1, y + c);
            }
        }
    }
}

#endif
