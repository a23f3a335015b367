/* Depthwise convolution of floats whose image is streamed, two channels at a time; the number of channels is even.
 *
 * Up to eight outputs beside or below each other are computed together: a pair of weights is loaded once for all.
 */
#include "../portable/depthwise2d.h"

#include "snitch_products.h"
#include "snitch_regions.h"

/* Outputs along two axes, `lanes` of the first one at a time, of all pairs of channels. */
struct part {
    const float *x, *w;
    float *y;
    int outputs, x_step, y_step;
    int others, x_other, y_other;
    int rows, count, row, column, w_row, w_step; /* taps */
};

#define STRIPS(lanes)                                                                                                  \
    static void strips_##lanes(const struct part *p, const struct depthwise2d *k, const struct ends *e, int first) {   \
        const int is_nine = lanes == 8 && p->rows == 3 && p->count == 3;                                               \
        struct streams streams;                                                                                        \
        for (int from = 0; from < p->outputs; from += lanes) {                                                         \
            const int at = from + lanes <= p->outputs ? from : p->outputs - lanes;                                     \
            const float *const x = p->x + at * p->x_step;                                                              \
            float *const y = p->y + at * p->y_step;                                                                    \
            STREAM_BEGIN(                                                                                              \
                &streams, FIRST, 4,                                                                                    \
                {(float *)x, 1, {lanes, p->count, p->rows, p->others}, {p->x_step, p->column, p->row, p->x_other}});   \
            for (int c = first; c < k->filters; c += 2) {                                                              \
                float start[2] __attribute__((aligned(8)));                                                            \
                begin_sums(start, e, c, 2);                                                                            \
                const pair sum = pair_load(start);                                                                     \
                STREAM_FROM(&streams, FIRST, 4, (float *)x + c);                                                       \
                streams_on();                                                                                          \
                if (is_nine)                                                                                           \
                    multiply_nine_8(&streams, sum, p->w + c, p->w_step, p->w_row, p->others, y + c, p->y_step,         \
                                    p->y_other, e);                                                                    \
                else                                                                                                   \
                    multiply_pairs_##lanes(&streams, sum, p->w + c, p->count, p->rows, p->w_step, p->w_row, p->others, \
                                           y + c, p->y_step, p->y_other, e);                                           \
                streams_off();                                                                                         \
            }                                                                                                          \
        }                                                                                                              \
    }
STRIPS(8)
STRIPS(4)
STRIPS(1)

/* Three rows of three taps, from one output on groups of four and of two pairs of channels; every core begins with
 * other channels: cores that compute rows of the same ones would ask the same banks of memory all along. */
static void fours(const struct part *p, const struct depthwise2d *k, const struct ends *e, int from, int groups) {
    const int channels = k->filters & ~3;
    const float *const x = p->x + from * p->x_step;
    float start[4] __attribute__((aligned(8)));
    struct nine n = {.w_row = p->w_row, .w_step = p->w_step, .start = start, .lines = p->others, .groups = groups};
    struct streams streams;
    n.x_line = p->x_other, n.y_line = p->y_other, n.y_group = 4 * p->y_step, n.y_step = p->y_step;
    STREAM_BEGIN(&streams, FIRST, 4, {(float *)x, 1, {4, 3, 3, groups}, {p->x_step, p->column, p->row, 4 * p->x_step}});
    STREAM_BEGIN(&streams, SECOND, 4,
                 {(float *)x + 2, 1, {4, 3, 3, groups}, {p->x_step, p->column, p->row, 4 * p->x_step}});
    int c = 4 * (this_core() * (channels / 4) / CORES);
    for (int left = channels; left > 0; left -= 4, c = c + 4 < channels ? c + 4 : 0) {
        begin_sums(start, e, c, 4);
        n.w = p->w + c;
        multiply_nine(&streams, &n, x + c, p->y + from * p->y_step + c, e);
    }
}

static void unseen(const struct part *p, const struct depthwise2d *k, const struct ends *e) {
    for (int i = 0; i < p->others; i++) {
        for (int j = 0; j < p->outputs; j++) {
            float *const y = p->y + i * p->y_other + j * p->y_step;
            begin_sums(y, e, 0, k->filters);
            for (int c = 0; c < k->filters; c += 2) pair_store(y + c, clamped(pair_load(y + c), e));
        }
    }
}

/* The outputs of one rectangle: eight beside each other, or below where it is higher than wide. */
static void rectangle(const struct depthwise2d *k, const float *image, float *y, const struct stretch *rows,
                      const struct stretch *columns) {
    const int height = rows->last - rows->first, width = columns->last - columns->first;
    const int x_row = k->stride_h * k->x_row, x_column = k->stride_w * k->x_column;
    const struct ends e = ends_of(&k->epilogue);
    struct part p = {.w = (const float *)k->w, .y = y + rows->first * k->y_row + columns->first * k->y_column};
    p.rows = rows->taps.last - rows->taps.first, p.count = columns->taps.last - columns->taps.first;
    p.row = k->dilation_h * k->x_row, p.column = k->dilation_w * k->x_column;
    p.w_row = k->kernel_w * k->filters, p.w_step = k->filters;
    p.outputs = width, p.x_step = x_column, p.y_step = k->y_column;
    p.others = height, p.x_other = x_row, p.y_other = k->y_row;
    if (height > width) {
        p.outputs = height, p.x_step = x_row, p.y_step = k->y_row;
        p.others = width, p.x_other = x_column, p.y_other = k->y_column;
    }
    if (p.rows <= 0 || p.count <= 0) {
        unseen(&p, k, &e);
        return;
    }
    const int ih = rows->first * k->stride_h - k->top + rows->taps.first * k->dilation_h;
    const int iw = columns->first * k->stride_w - k->left + columns->taps.first * k->dilation_w;
    p.x = image + ih * k->x_row + iw * k->x_column;
    p.w += rows->taps.first * p.w_row + columns->taps.first * p.w_step;
    int first = 0; /* channels that are computed */
    if (p.rows == 3 && p.count == 3 && p.outputs >= 4) {
        fours(&p, k, &e, 0, p.outputs / 4);
        if (p.outputs % 4) fours(&p, k, &e, p.outputs - 4, 1);
        first = k->filters & ~3;
    }
    if (first == k->filters) return;
    if (p.outputs >= 8)
        strips_8(&p, k, &e, first);
    else if (p.outputs >= 4)
        strips_4(&p, k, &e, first);
    else
        strips_1(&p, k, &e, first);
}

void KERNEL(const struct depthwise2d *k) {
    OVER_RECTANGLES(k, rectangle)
}
