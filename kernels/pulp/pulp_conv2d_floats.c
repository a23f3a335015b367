/* y[n, oh, ow, k] = epilogue(the sum over fh, fw, c of x[n, oh*sh + fh*dh - top, ow*sw + fw*dw - left, c] * w[fh, fw,
 * c, k]), of floats; products are not rounded before they are added.
 *
 * x and y are channels-last images, w holds neighbouring filters side by side. Blocks of four positions of a row that
 * see no border, and four filters, have their sums in registers (pulp_floats.h) for as many taps as are neighbours in
 * memory; other positions are computed one by one. Two cores share a unit that multiplies, which bounds it.
 */
#include "../portable/conv2d.h"

#include "pulp_floats.h"
#include "pulp_window.h"

/* Taps of one or four positions, the first of which begins at row ih and column iw of the image. */
struct seen {
    struct taps rows, columns;
    int ih, iw;
};

/* All filters at four positions, or at one. Constants choose instructions. */
FOLDED void positions(const struct conv2d *k, const float *image, const struct seen *at, float *y, int is_single,
                      int is_w_dense) {
    const int is_run = k->dilation_w * k->x_column == k->channels && k->w_column == k->channels * k->w_channel;
    const int taps = is_run && at->columns.count ? 1 : at->columns.count;
    const int depth = is_run ? at->columns.count * k->channels : k->channels, step = k->dilation_w * k->x_column;
    const float *const x = image + at->iw * k->x_column + at->columns.first * step;
    const float *const w = (const float *)k->w + at->columns.first * k->w_column;
    struct factors f = {
        0, 0, SIDE, is_w_dense || k->filters > SIDE ? SIDE : k->filters, k->stride_w * k->x_column, 1, 1, k->w_channel};
    for (int next = 0; next < k->filters; next += SIDE) {
        const int filter = next + SIDE <= k->filters || k->filters < SIDE ? next : k->filters - SIDE;
        float sums[BLOCK];
        clear_block(sums);
        for (int fh = at->rows.first; fh < at->rows.first + at->rows.count; fh++) {
            f.a = x + (at->ih + fh * k->dilation_h) * k->x_row, f.b = w + fh * k->w_row + filter;
            for (int fw = 0; fw < taps; fw++, f.a += step, f.b += k->w_column)
                add_block(sums, &f, depth, 0, is_single, 0, is_w_dense);
        }
        for (int p = 0; p < (is_single ? 1 : SIDE); p++)
            store(&k->epilogue, sums + SIDE * p, y + p * k->y_column + filter, 1, filter, 1, f.columns);
    }
}

#define POSITIONS(name, is_single, is_w_dense)                                                           \
    OUT_OF_LINE void name(const struct conv2d *k, const float *image, const struct seen *at, float *y) { \
        positions(k, image, at, y, is_single, is_w_dense);                                               \
    }
POSITIONS(four_positions, 0, 1)
POSITIONS(one_position, 1, 1)
POSITIONS(few_filters, 0, 0)
POSITIONS(few_filters_once, 1, 0)

/* A row of y, of which positions first to last - 1 see no border. The last four of them may begin earlier. */
static inline void row(const struct conv2d *k, const float *image, int oh, float *y, int first, int last) {
    struct seen at = {.ih = oh * k->stride_h - k->top};
    at.rows = taps_inside(at.ih, k->dilation_h, k->kernel_h, k->height);
    for (int ow = 0; ow < k->out_width;) {
        const int is_block = last - first >= SIDE && ow >= first && ow + 1 < last;
        const int from = is_block && ow + SIDE > last ? last - SIDE : ow;
        at.iw = from * k->stride_w - k->left;
        at.columns = taps_inside(at.iw, k->dilation_w, k->kernel_w, k->width);
        float *const to = y + from * k->y_column;
        if (is_block && k->filters >= SIDE)
            four_positions(k, image, &at, to);
        else if (is_block)
            few_filters(k, image, &at, to);
        else if (k->filters >= SIDE)
            one_position(k, image, &at, to);
        else
            few_filters_once(k, image, &at, to);
        ow = from + (is_block ? SIDE : 1);
    }
}

void KERNEL(const struct conv2d *given) {
    struct conv2d k = *given;
    /* Rows of a pointwise convolution that lie one behind the other are one. */
    if (k.kernel_h * k.kernel_w == 1 && k.stride_h * k.stride_w == 1 && k.height == k.out_height &&
        k.width == k.out_width && k.x_row == k.width * k.x_column && k.y_row == k.width * k.y_column) {
        k.width = k.out_width = k.width * k.height;
        k.height = k.out_height = 1;
    }
    int first = 0, last = k.out_width;
    while (first < last && first * k.stride_w < k.left) first++;
    while (last > first && (last - 1) * k.stride_w - k.left + (k.kernel_w - 1) * k.dilation_w >= k.width) last--;
    for (int n = 0; n < k.batch; n++) {
        for (int oh = 0; oh < k.out_height; oh++)
            row(&k, (const float *)k.x + n * k.x_batch, oh, (float *)k.y + n * k.y_batch + oh * k.y_row, first, last);
    }
}
