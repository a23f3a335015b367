#include "neureka_runs.h"

#include "../pulp/xpulp.h"

/* What an image is copied from. */
struct source {
    const struct neureka_runs *k;
    const uint8_t *image;
};

static int32_t within(int32_t value, int32_t most) {
    return value < 0 ? 0 : value < most ? value : most;
}

/* Bytes from pixel to pixel of the copy. */
static int32_t across(const struct neureka_runs *k) {
    return UPRIGHT ? k->rows * k->channels : k->channels;
}

static int32_t down(const struct neureka_runs *k) {
    return UPRIGHT ? k->channels : k->columns * k->channels;
}

static uint8_t *put_border(const struct neureka_runs *k, uint8_t *to, int32_t count) {
    const uint8_t border = (uint8_t)(k->layer.padding_value & 255);
    if (!UPRIGHT && count) xp_fill(to, border, count * k->channels);
    for (int32_t i = 0; UPRIGHT && i < count; i++) xp_fill(to + i * across(k), border, k->channels);
    return to + count * across(k);
}

/* Copies `count` pixels of a row of what windows see, from column `first` on. */
static void copy_pixels(const struct neureka_runs *k, const uint8_t *image, int32_t row, int32_t first, int32_t count) {
    const int32_t y = row - k->top, x = first - k->left;
    const int is_inside = y >= 0 && y < k->height;
    const int32_t before = is_inside ? within(-x, count) : count;
    const int32_t inside = is_inside ? within(k->width - x - before, count - before) : 0;
    uint8_t *to = put_border(k, k->padded + row * down(k) + first * across(k), before);
    const uint8_t *from = image + y * k->x_row + (x + before) * k->channels;
    if (!UPRIGHT && inside) xp_copy(to, from, inside * k->channels);
    for (int32_t i = 0; UPRIGHT && i < inside; i++) xp_copy(to + i * across(k), from + i * k->channels, k->channels);
    put_border(k, to + inside * across(k), count - before - inside);
}

/* The calling core's share of an image and its border. */
static void copy_share(void *argument) {
    const struct source *const s = argument;
    const struct neureka_runs *const k = s->k;
    const int32_t pixels = k->rows * k->columns, share = (pixels + k->cores - 1) / k->cores;
    int32_t begin = rt_core() * share;
    const int32_t end = begin + share < pixels ? begin + share : pixels;
    for (int32_t row = begin / k->columns, column = begin - row * k->columns; begin < end; row++, column = 0) {
        const int32_t rest = k->columns - column, count = end - begin < rest ? end - begin : rest;
        copy_pixels(k, s->image, row, column, count);
        begin += count;
    }
}

/* A job for each run, of pixels that are `x_row` and `x_column` bytes apart. Jobs that add to the same sums are waited
 * for one by one, but for the last: they differ in three registers. */
static void begin_runs(const struct neureka_runs *k, const struct neureka_tile *tile, int32_t x_row, int32_t x_column) {
    uint32_t registers[NEUREKA_REGISTERS];
    const int32_t next = k->dilation_w * x_column, below = k->dilation_h * x_row - k->runs_w * next;
    neureka_registers(&k->layer, tile, registers);
    for (int32_t i = 0; i < k->runs_h; i++, registers[NEUREKA_X] += (uint32_t)below) {
        for (int32_t j = 0; j < k->runs_w; j++) {
            if (i || j) rt_job_wait(k->accelerator);
            rt_job(k->accelerator, registers, NEUREKA_REGISTERS);
            registers[NEUREKA_WEIGHTS] += (uint32_t)k->weights, registers[NEUREKA_X] += (uint32_t)next;
            registers[NEUREKA_CONFIG] |= NEUREKA_ADD; /* to the sums so far */
        }
    }
}

/* All outputs of an image. Leaves one job that was not waited for. */
static void convolve(const struct neureka_runs *k, struct neureka_tile tile, int32_t x_row, int32_t x_column) {
    tile.x_pixel = k->stride_w * x_column, tile.x_row = k->stride_h * x_row;
    const int32_t tall = tile.width / NEUREKA_PIXELS, rest = tile.width - NEUREKA_PIXELS * tall;
    if (!LINEAR) {
        begin_runs(k, &tile, x_row, x_column);
        return;
    }
    tile.x_row = NEUREKA_PIXELS * tile.x_pixel, tile.y_row = NEUREKA_PIXELS * tile.y_pixel;
    if (tall) {
        tile.height = tall, tile.width = NEUREKA_PIXELS;
        begin_runs(k, &tile, x_row, x_column);
        if (rest) rt_job_wait(k->accelerator);
    }
    if (rest) {
        tile.x += (rt_address)(tall * tile.x_row), tile.y += (rt_address)(tall * tile.y_row);
        tile.height = 1, tile.width = rest;
        begin_runs(k, &tile, x_row, x_column);
    }
}

void KERNEL(const struct neureka_runs *k) {
    const int is_copied = UPRIGHT || k->top || k->left || k->rows > k->height || k->columns > k->width;
    struct neureka_tile tile = k->tile;
    for (int32_t image = 0; image < k->images; image++, tile.y += (rt_address)k->y_image) {
        struct source source = {k, (const uint8_t *)k->x + image * k->x_image};
        if (image) rt_job_wait(k->accelerator);
        if (is_copied && k->cores > 1) rt_fork(k->cores, copy_share, &source);
        if (is_copied && k->cores == 1) copy_share(&source);
        tile.x = is_copied ? (rt_address)k->padded : (rt_address)source.image;
        convolve(k, tile, is_copied ? down(k) : k->x_row, is_copied ? across(k) : k->channels);
    }
}
