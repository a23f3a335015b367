#include "neureka_patches.h"

#include "../pulp/xpulp.h"

/* A band of patches: `count` from row `first` of the outputs on, of one image. */
struct band {
    const struct neureka_patches *k;
    const uint8_t *image;
    uint8_t *patches;
    int32_t first, count;
};

/* Copies `count` pixels that lie side by side to places that are `step` bytes apart. */
static void spread(const uint8_t *from, uint8_t *to, int32_t count, int32_t step, int32_t channels) {
    if (step == channels) {
        xp_copy(to, from, count * channels);
    } else if (channels == 1) {
        for (; count > 0; count--, from++, to += step) to[0] = from[0];
    } else if (channels == 3) {
        for (; count > 0; count--, from += 3, to += step) {
            const uint8_t a = from[0], b = from[1], c = from[2];
            to[0] = a, to[1] = b, to[2] = c;
        }
    } else {
        for (; count > 0; count--, from += channels, to += step) xp_copy(to, from, channels);
    }
}

static void spread_border(uint8_t border, uint8_t *to, int32_t count, int32_t step, int32_t channels) {
    for (; count > 0; count--, to += step) {
        for (int32_t i = 0; i < channels; i++) to[i] = border;
    }
}

/* One row of x in one patch. */
static void gather(const struct neureka_patches *k, const uint8_t *image, int32_t row, uint8_t *to) {
    const int32_t step = k->kernel_h * k->channels;
    const uint8_t border = (uint8_t)(k->layer.padding_value & 255);
    if (row < 0 || row >= k->height) {
        spread_border(border, to, k->columns, step, k->channels);
        return;
    }
    const int32_t before = k->left < k->columns ? k->left : k->columns;
    const int32_t left = k->columns - before, inside = left < k->width ? left : k->width;
    spread_border(border, to, before, step, k->channels);
    spread(image + row * k->x_row, to + before * step, inside, step, k->channels);
    spread_border(border, to + (before + inside) * step, left - inside, step, k->channels);
}

/* The calling core's share of the rows of all patches of a band. */
static void gather_share(void *argument) {
    const struct band *const b = argument;
    const struct neureka_patches *const k = b->k;
    const int32_t rows = b->count * k->kernel_h, share = (rows + k->cores - 1) / k->cores;
    const int32_t begin = rt_core() * share, end = begin + share < rows ? begin + share : rows;
    int32_t patch = begin / k->kernel_h, tap = begin - patch * k->kernel_h;
    for (int32_t i = begin; i < end; i++) {
        uint8_t *const to = b->patches + (patch * k->columns * k->kernel_h + tap) * k->channels;
        gather(k, b->image, (b->first + patch) * k->stride_h + tap * k->dilation_h - k->top, to);
        if (++tap == k->kernel_h) tap = 0, patch++;
    }
}

/* While the engine works on one band, the next is gathered. Leaves one job that was not waited for. */
void KERNEL(const struct neureka_patches *k) {
    const int32_t bytes = k->band * k->columns * k->kernel_h * k->channels, height = k->tile.height;
    struct neureka_tile tile = k->tile;
    int is_busy = 0, turn = 0;
    for (int32_t image = 0; image < k->images; image++) {
        for (int32_t first = 0; first < height; first += k->band, turn ^= 1) {
            struct band band = {k, (const uint8_t *)k->x + image * k->x_image, k->patches + turn * bytes, first,
                                height - first < k->band ? height - first : k->band};
            if (k->cores > 1)
                rt_fork(k->cores, gather_share, &band);
            else
                gather_share(&band);
            if (is_busy) rt_job_wait(k->accelerator);
            is_busy = 1;
            tile.x = (rt_address)band.patches;
            tile.y = k->tile.y + (rt_address)(image * k->y_image + first * tile.y_row);
            tile.height = band.count;
            neureka_job(k->accelerator, &k->layer, &tile);
        }
    }
}
