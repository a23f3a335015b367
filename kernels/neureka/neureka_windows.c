#include "neureka_windows.h"

#include "../pulp/xpulp.h"

/* A band of windows: `count` from number `first` on, of one image. */
struct band {
    const struct neureka_windows *k;
    const uint8_t *image;
    uint8_t *windows;
    int32_t first, count;
};

static int32_t within(int32_t value, int32_t most) {
    return value < 0 ? 0 : value < most ? value : most;
}

/* The taps of one row of a window, one after the other: neighbours in the image are a run between two borders. */
static void gather_row(const struct neureka_windows *k, const uint8_t *row, int32_t column, uint8_t *to) {
    const int32_t border = k->layer.padding_value & 255;
    if (k->dilation_w * k->x_column == k->channels) {
        const int32_t first = within(-column, k->kernel_w), last = within(k->width - column, k->kernel_w);
        const int32_t end = last > first ? last : first;
        xp_fill(to, (uint8_t)border, first * k->channels);
        if (end > first)
            xp_copy(to + first * k->channels, row + (column + first) * k->x_column, (end - first) * k->channels);
        xp_fill(to + end * k->channels, (uint8_t)border, (k->kernel_w - end) * k->channels);
        return;
    }
    for (int32_t tap = 0; tap < k->kernel_w; tap++, column += k->dilation_w, to += k->channels) {
        if (column >= 0 && column < k->width)
            xp_copy(to, row + column * k->x_column, k->channels);
        else
            xp_fill(to, (uint8_t)border, k->channels);
    }
}

/* Windows inside of the image whose taps of a row are neighbours are runs, one for every row. */
static inline void gather_runs(const struct neureka_windows *k, const uint8_t *from, uint8_t *to) {
    const int32_t run = k->kernel_w * k->channels, step = k->dilation_h * k->x_row;
    for (int32_t tap = k->kernel_h; tap; tap--, from += step, to += run) xp_copy(to, from, run);
}

static void gather(const struct neureka_windows *k, const uint8_t *image, int32_t row, int32_t column, uint8_t *to) {
    const int32_t run = k->kernel_w * k->channels;
    for (int32_t tap = 0; tap < k->kernel_h; tap++, row += k->dilation_h, to += run) {
        if (row < 0 || row >= k->height)
            xp_fill(to, (uint8_t)k->layer.padding_value, run);
        else
            gather_row(k, image + row * k->x_row, column, to);
    }
}

/* The calling core's share of a band. */
static void gather_share(void *argument) {
    const struct band *const b = argument;
    const struct neureka_windows *const k = b->k;
    const int32_t share = (b->count + k->cores - 1) / k->cores, begin = rt_core() * share;
    const int32_t end = begin + share < b->count ? begin + share : b->count;
    const int32_t rows = k->height - (k->kernel_h - 1) * k->dilation_h; /* where windows inside of the image begin */
    const int32_t columns = k->dilation_w * k->x_column == k->channels || k->kernel_w == 1
                                ? k->width - (k->kernel_w - 1) * k->dilation_w
                                : 0;
    int32_t i = (b->first + begin) / k->out_width, j = b->first + begin - i * k->out_width;
    uint8_t *to = b->windows + begin * k->pitch;
    for (int32_t left = end - begin; left > 0; left--, to += k->pitch) {
        const int32_t row = i * k->stride_h - k->top, column = j * k->stride_w - k->left;
        if (row >= 0 && row < rows && column >= 0 && column < columns)
            gather_runs(k, b->image + row * k->x_row + column * k->x_column, to);
        else
            gather(k, b->image, row, column, to);
        if (++j == k->out_width) j = 0, i++;
    }
}

/* While the engine works on one band, the next is gathered. Leaves at most one job that was not waited for. */
void KERNEL(const struct neureka_windows *k) {
    const int32_t outputs = k->out_height * k->out_width;
    struct neureka_tile tile = k->tile;
    int before = 0, turn = 0; /* jobs of the band before */
    for (int32_t image = 0; image < k->images; image++) {
        for (int32_t first = 0; first < outputs; first += k->band, turn ^= 1) {
            struct band band = {k, (const uint8_t *)k->x + image * k->x_image, k->windows + turn * k->band * k->pitch,
                                first, outputs - first < k->band ? outputs - first : k->band};
            if (k->cores > 1)
                rt_fork(k->cores, gather_share, &band);
            else
                gather_share(&band);
            for (; before; before--) rt_job_wait(k->accelerator);
            tile.x = (rt_address)band.windows;
            tile.y = k->tile.y + (rt_address)(image * k->y_image + first * tile.y_pixel);
            before = neureka_linear(k->accelerator, &k->layer, &tile, band.count);
        }
    }
    while (--before > 0) rt_job_wait(k->accelerator);
}
