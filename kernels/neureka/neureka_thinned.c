#include "neureka_thinned.h"

#include "../pulp/xpulp.h"

/* Begins the job for `count` rows of all outputs, from row `first` of the image that `t` begins at. */
static void begin(const struct neureka_thinned *k, struct neureka_tile t, int32_t first, int32_t count, uint8_t *all) {
    const int32_t below = first + count + 2 - t.top - k->rows; /* rows that the last window sees behind x */
    if (first) t.x += (rt_address)((first - t.top) * t.x_row), t.top = 0;
    t.bottom = below > 0 ? below : 0;
    t.y = (rt_address)all;
    t.height = count;
    t.width = (t.width - 1) * k->stride_w + 1;
    t.y_pixel = k->pixel, t.y_row = t.width * k->pixel;
    neureka_job(k->accelerator, &k->layer, &t);
}

/* Copies what stays of `count` rows of all outputs to `to`. */
static void thin(const struct neureka_thinned *k, const uint8_t *all, int32_t count, uint8_t *to) {
    const int32_t step = k->stride_w * k->pixel, row = ((k->tile.width - 1) * k->stride_w + 1) * k->pixel;
    for (int32_t i = 0; i < count; i += k->stride_h, to += k->tile.y_row, all += k->stride_h * row) {
        if (k->stride_w == 1 && k->tile.y_pixel == k->pixel) {
            xp_copy(to, all, row);
            continue;
        }
        for (int32_t j = 0; j < k->tile.width; j++) xp_copy(to + j * k->tile.y_pixel, all + j * step, k->pixel);
    }
}

/* While the engine works on one band of rows, the one before is thinned out. */
void KERNEL(const struct neureka_thinned *k) {
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
            thin(k, k->all + turn * bytes, left > 0 ? k->band : rows - first,
                 (uint8_t *)tile.y + first / k->stride_h * tile.y_row);
        }
        tile.x += (rt_address)k->x_image, tile.y += (rt_address)k->y_image;
    }
}
