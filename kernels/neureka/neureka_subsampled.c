#include "neureka_subsampled.h"

#include "../pulp/xpulp.h"

/* Begins the job for `count` rows of all outputs, from row `first` of the image that `t` begins at. */
static void begin(const struct neureka_subsampled *k, struct neureka_tile t, int32_t first, int32_t count,
                  uint8_t *all) {
    const int32_t below = first + count + 2 - t.top - k->rows; /* rows that the last window sees behind x */
    if (first) t.x += (rt_address)((first - t.top) * t.x_row), t.top = 0;
    t.bottom = below > 0 ? below : 0;
    t.y = (rt_address)all;
    t.height = count;
    t.width = (t.width - 1) * k->stride_w + 1;
    t.y_pixel = k->pixel, t.y_row = t.width * k->pixel;
    neureka_job(k->accelerator, &k->layer, &t);
}

/* What stays of `count` rows of all outputs, from `all` on, goes to `to`. */
struct band {
    const struct neureka_subsampled *k;
    const uint8_t *all;
    uint8_t *to;
    int32_t count;
};

/* The calling core's share of the pixels that stay. */
static void thin(void *argument) {
    const struct band *const b = argument;
    const struct neureka_subsampled *const k = b->k;
    const int32_t width = k->tile.width, row = ((width - 1) * k->stride_w + 1) * k->pixel;
    const int32_t pixels = (b->count + k->stride_h - 1) / k->stride_h * width,
                  share = (pixels + k->cores - 1) / k->cores;
    const int32_t begin = rt_core() * share, end = begin + share < pixels ? begin + share : pixels;
    int32_t i = begin / width, j = begin - i * width;
    for (int32_t left = end - begin; left > 0; left--) {
        xp_copy(b->to + i * k->tile.y_row + j * k->tile.y_pixel,
                b->all + i * k->stride_h * row + j * k->stride_w * k->pixel, k->pixel);
        if (++j == width) j = 0, i++;
    }
}

/* While the engine works on one band of rows, the one before is subsampled. */
void KERNEL(const struct neureka_subsampled *k) {
    const int32_t rows = (k->tile.height - 1) * k->stride_h + 1;
    const int32_t bytes = k->band * ((k->tile.width - 1) * k->stride_w + 1) * k->pixel;
    struct neureka_tile tile = k->tile;
    for (int32_t image = 0; image < k->images; image++) {
        int turn = 0;
        begin(k, tile, 0, rows < k->band ? rows : k->band, k->all);
        for (int32_t first = 0; first < rows; first += k->band, turn ^= 1) {
            const int32_t next = first + k->band, left = rows - next;
            if (left > 0) begin(k, tile, next, left < k->band ? left : k->band, k->all + (turn ^ 1) * bytes);
            rt_job_wait(k->accelerator);
            struct band band = {k, k->all + turn * bytes, (uint8_t *)tile.y + first / k->stride_h * tile.y_row,
                                left > 0 ? k->band : rows - first};
            if (k->cores > 1)
                rt_fork(k->cores, thin, &band);
            else
                thin(&band);
        }
        tile.x += (rt_address)k->x_image, tile.y += (rt_address)k->y_image;
    }
}
