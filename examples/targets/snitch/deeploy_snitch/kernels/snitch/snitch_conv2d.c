/* Convolution of floats in one group, whose weights are streamed: neighbouring filters are neighbours in memory, and
 * their number is even. Taps of a row are neighbours in the image.
 */
#include "../portable/conv2d.h"

#include "snitch_products.h"
#include "snitch_regions.h"

/* So many pairs of filters from a first one on, of the outputs of one rectangle. */
#define FILTERS(lanes)                                                                                            \
    static void filters_##lanes(const struct conv2d *k, const float *image, float *y, const struct stretch *rows, \
                                const struct stretch *columns, int first) {                                       \
        const int count = (columns->taps.last - columns->taps.first) * k->channels;                               \
        const int taps = rows->taps.last - rows->taps.first;                                                      \
        const int outputs = (rows->last - rows->first) * (columns->last - columns->first);                        \
        const struct ends e = ends_of(&k->epilogue);                                                              \
        const float *w = (const float *)k->w + first;                                                             \
        struct streams streams;                                                                                   \
        float both[2] __attribute__((aligned(8)));                                                                \
        w += rows->taps.first * k->w_row + columns->taps.first * k->w_column;                                     \
        STREAM_STARTS(&streams, e, first, both, lanes, outputs);                                                  \
        STREAM_BEGIN(&streams, SECOND, 4,                                                                         \
                     {(float *)w, 1, {lanes, count, taps, outputs}, {2, k->w_channel, k->w_row, 0}});             \
        streams_on();                                                                                             \
        for (int oh = rows->first; oh < rows->last; oh++) {                                                       \
            const int ih = oh * k->stride_h - k->top + rows->taps.first * k->dilation_h;                          \
            const int iw = columns->first * k->stride_w - k->left + columns->taps.first;                          \
            const int step = k->stride_w * k->x_column, y_step = k->y_column, row = k->dilation_h * k->x_row;     \
            const float *x = image + ih * k->x_row + iw * k->x_column;                                            \
            float *to = y + oh * k->y_row + columns->first * k->y_column + first;                                 \
            for (int left = columns->last - columns->first; left > 0; left--, x += step, to += y_step)            \
                multiply_ones_##lanes(&streams, x, count, taps, row, to, &e);                                     \
        }                                                                                                         \
        streams_off();                                                                                            \
    }
FILTERS(16)
FILTERS(8)
FILTERS(4)
FILTERS(2)
FILTERS(1)

/* Outputs that see no tap: what sums begin with. */
static void unseen(const struct conv2d *k, float *y, const struct stretch *rows, const struct stretch *columns) {
    const struct ends e = ends_of(&k->epilogue);
    for (int oh = rows->first; oh < rows->last; oh++) {
        for (int ow = columns->first; ow < columns->last; ow++) {
            float *const to = y + oh * k->y_row + ow * k->y_column;
            begin_sums(to, &e, 0, k->filters);
            for (int j = 0; j < k->filters; j += 2) pair_store(to + j, clamped(pair_load(to + j), &e));
        }
    }
}

static void rectangle(const struct conv2d *k, const float *image, float *y, const struct stretch *rows,
                      const struct stretch *columns) {
    int first = 0;
    if (rows->taps.first >= rows->taps.last || columns->taps.first >= columns->taps.last) {
        unseen(k, y, rows, columns);
        return;
    }
    for (; first + 32 <= k->filters; first += 32) filters_16(k, image, y, rows, columns, first);
    for (; first + 16 <= k->filters; first += 16) filters_8(k, image, y, rows, columns, first);
    for (; first + 8 <= k->filters; first += 8) filters_4(k, image, y, rows, columns, first);
    for (; first + 4 <= k->filters; first += 4) filters_2(k, image, y, rows, columns, first);
    for (; first < k->filters; first += 2) filters_1(k, image, y, rows, columns, first);
}

void KERNEL(const struct conv2d *k) {
    OVER_RECTANGLES(k, rectangle)
}
