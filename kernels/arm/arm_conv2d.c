/* y[n, oh, ow, k] = the sum of x[n, oh stride_h + fh dilation_h - top, ow stride_w + fw dilation_w - left, c] w[k, fh,
 * fw, c], finished; zero_point outside x.
 *
 * Four windows are copied in 16 bits, and multiplied by two filters at a time (arm_dot.h). Positions that are left are
 * multiplied one by one. */
#include "arm_epilogue.h"

#include "arm_conv2d.h"

#define VECTOR_T X_T
#define MATRIX_T W_T
#include "arm_dot.h"

/* Four at a time, of which the last ones may have been copied before. */
static inline X_T *copy(X_T *to, const X_T *from, int count) {
    X_T *const end = to + count;
    if (count < 4) {
        while (to != end) *to++ = *from++;
        return end;
    }
    const X_T *const last = from + count - 4;
    for (; from < last; from += 4, to += 4) memcpy(to, from, 4);
    memcpy(end - 4, last, 4);
    return end;
}

static inline X_T *outside(X_T *to, int value, int count) {
    for (; count > 0; count--) *to++ = (X_T)value;
    return to;
}

/* A copy of what the window at (ih, iw) of one group sees, filled up to `depth`. */
OUT_OF_LINE void copy_window(const struct arm_conv2d *k, const X_T *image, int ih, int iw, int depth, X_T *room) {
    const int is_run = k->dilation_w * k->x_column == k->channels || k->kernel_w == 1;
    const int inside = is_run && iw >= 0 && iw + (k->kernel_w - 1) * k->dilation_w < k->width;
    const int run = k->kernel_w * k->channels;
    X_T *to = room;
    for (int fh = 0; fh < k->kernel_h; fh++) {
        const int row = ih + fh * k->dilation_h;
        if (row < 0 || row >= k->height) {
            to = outside(to, k->zero_point, run);
        } else if (inside) {
            to = copy(to, image + row * k->x_row + iw * k->x_column, run);
        } else {
            for (int fw = 0; fw < k->kernel_w; fw++) {
                const int column = iw + fw * k->dilation_w;
                if (column >= 0 && column < k->width)
                    to = copy(to, image + row * k->x_row + column * k->x_column, k->channels);
                else
                    to = outside(to, k->zero_point, k->channels);
            }
        }
    }
    outside(to, 0, (int)(room + depth - to));
}

/* The pairs of what the window at (ih, iw) of one group sees, whose channels are whole words. */
OUT_OF_LINE void widen_window(const struct arm_conv2d *k, const X_T *image, int ih, int iw, uint32_t *pairs) {
    const int is_run = k->dilation_w * k->x_column == k->channels || k->kernel_w == 1;
    const int inside = is_run && iw >= 0 && iw + (k->kernel_w - 1) * k->dilation_w < k->width;
    const int taps = inside ? 1 : k->kernel_w, run = inside ? k->kernel_w * k->channels : k->channels;
    for (int fh = 0, row = ih; fh < k->kernel_h; fh++, row += k->dilation_h) {
        const int is_row = row >= 0 && row < k->height;
        const X_T *x = image + row * k->x_row + iw * k->x_column;
        for (int fw = 0, column = iw; fw < taps; fw++, column += k->dilation_w) {
            if (is_row && column >= 0 && column < k->width)
                pairs = widen_here(x, run, pairs);
            else
                pairs = fill_pairs(k->zero_point, run, pairs);
            x += k->dilation_w * k->x_column;
        }
    }
}

/* `count` positions of an image from number `first` of row `row` on, four or fewer, whose outputs lie y_column apart.
 * With `is_pixel`, each sees one pixel. */
static void positions(const struct arm_conv2d *k, const X_T *image, Y_T *y, int row, int first, int count,
                      int is_pixel) {
    const int depth = (k->kernel_h * k->kernel_w * k->channels + 3) & ~3, is_whole = !(k->channels & 3);
    uint32_t near[256], *const pairs = (9 - is_whole) * depth > (int)sizeof near ? k->windows : near;
    X_T *const room = (X_T *)(pairs + 2 * depth);
    const int width = k->out_width * k->stride_w - k->left;
    for (int group = 0; group < k->groups; group++, image += k->channels) {
        int ih = row * k->stride_h - k->top, iw = first * k->stride_w - k->left;
        for (int i = 0; i < count; i++, iw += k->stride_w) {
            while (iw >= width) iw -= width + k->left, ih += k->stride_h;
            if (is_pixel) {
                widen_here(image + ih * k->x_row + iw * k->x_column, depth, pairs + i);
            } else if (is_whole) {
                widen_window(k, image, ih, iw, pairs + i);
            } else {
                copy_window(k, image, ih, iw, depth, room);
                widen(room, depth, pairs + i);
            }
        }
        const int channel = group * k->filters;
        const W_T *const w = (const W_T *)k->w + channel * depth;
        if (count == VECTORS)
            multiply_vectors(pairs, w, depth, k->filters, y + channel, k->y_column, &k->epilogue, channel);
        for (int i = 0; i < count && count < VECTORS; i++)
            multiply_vector(pairs + i, w, depth, k->filters, y + i * k->y_column + channel, &k->epilogue, channel);
    }
}

void KERNEL(const struct arm_conv2d *k) {
    const int is_dense = k->y_row == k->out_width * k->y_column; /* then four positions may be of several rows */
    const int rows = is_dense ? 1 : k->out_height, columns = is_dense ? k->out_height * k->out_width : k->out_width;
    const int is_inside = (k->out_height - 1) * k->stride_h < k->height && (k->out_width - 1) * k->stride_w < k->width;
    const int is_pixel = is_inside && k->kernel_h * k->kernel_w == 1 && !(k->channels & 3) && !k->top && !k->left;
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + n * k->x_batch;
        for (int row = 0; row < rows; row++) {
            Y_T *y = (Y_T *)k->y + n * k->y_batch + row * k->y_row;
            int oh = row, ow = 0;
            for (int left = columns; left > 0; left -= VECTORS, y += VECTORS * k->y_column) {
                positions(k, image, y, oh, ow, left < VECTORS ? left : VECTORS, is_pixel);
                for (ow += VECTORS; ow >= k->out_width; oh++) ow -= k->out_width;
            }
        }
    }
}
