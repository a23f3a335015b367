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
    return UPRIGHT ? k->rows * k->block : k->block;
}

static int32_t down(const struct neureka_runs *k) {
    return UPRIGHT ? k->block : k->columns * k->block;
}

static uint8_t *put_border(const struct neureka_runs *k, uint8_t *to, int32_t count) {
    const uint8_t border = (uint8_t)(k->layer.padding_value & 255);
    if (!UPRIGHT && count) xp_fill(to, border, count * k->block);
    for (int32_t i = 0; UPRIGHT && i < count; i++) xp_fill(to + i * across(k), border, k->block);
    return to + count * across(k);
}

static void copy_inside(const struct neureka_runs *k, const uint8_t *from, int32_t channels, uint8_t *to,
                        int32_t count) {
    if (!UPRIGHT && !IN_BLOCKS && count) xp_copy(to, from, count * channels);
    for (int32_t i = 0; (UPRIGHT || IN_BLOCKS) && i < count; i++)
        xp_copy(to + i * across(k), from + i * k->x_column, channels);
}

/* Copies `count` pixels of a row of what windows see, from column `first` on. */
static void copy_pixels(const struct neureka_runs *k, const uint8_t *image, int32_t row, int32_t first, int32_t count) {
    const int32_t y = row - k->top, x = first - k->left;
    const int is_inside = y >= 0 && y < k->height;
    const int32_t before = is_inside ? within(-x, count) : count;
    const int32_t inside = is_inside ? within(k->width - x - before, count - before) : 0;
    const uint8_t *from = image + y * k->x_row + (x + before) * k->x_column;
    uint8_t *at = k->padded + row * down(k) + first * across(k);
    for (int32_t done = 0; done < k->channels; done += k->block, at += k->rows * k->columns * k->block) {
        const int32_t channels = k->channels - done < k->block ? k->channels - done : k->block;
        uint8_t *to = put_border(k, at, before);
        copy_inside(k, from + done, channels, to, inside);
        put_border(k, to + inside * across(k), count - before - inside);
    }
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

/* A job for each run, of pixels that are `x_row` and `x_column` bytes apart; unless it is the first one, nobody has
 * waited for the job before. Jobs that add to the same sums differ in three registers. Leaves the last one. */
static void begin_runs(const struct neureka_runs *k, const struct neureka_tile *tile, int32_t x_row, int32_t x_column,
                       int is_first) {
    uint32_t registers[NEUREKA_REGISTERS];
    const int32_t next = k->dilation_w * x_column, below = k->dilation_h * x_row - k->runs_w * next;
    neureka_registers(&k->layer, tile, registers);
    for (int32_t i = 0; i < k->runs_h; i++, registers[NEUREKA_X] += (uint32_t)below) {
        for (int32_t j = 0; j < k->runs_w; j++, is_first = 0) {
            if (!is_first) rt_job_wait(k->accelerator);
            rt_job(k->accelerator, registers, NEUREKA_REGISTERS);
            registers[NEUREKA_WEIGHTS] += (uint32_t)k->w_run, registers[NEUREKA_X] += (uint32_t)next;
            registers[NEUREKA_CONFIG] |= NEUREKA_ADD; /* to the sums so far */
        }
    }
}

/* All outputs of a block of channels. */
static void convolve(const struct neureka_runs *k, struct neureka_tile tile, int32_t x_row, int32_t x_column,
                     int is_first) {
    tile.x_pixel = k->stride_w * x_column, tile.x_row = k->stride_h * x_row;
    const int32_t tall = tile.width / NEUREKA_PIXELS, rest = tile.width - NEUREKA_PIXELS * tall;
    if (!LINEAR) {
        begin_runs(k, &tile, x_row, x_column, is_first);
        return;
    }
    tile.x_row = NEUREKA_PIXELS * tile.x_pixel, tile.y_row = NEUREKA_PIXELS * tile.y_pixel;
    if (tall) {
        tile.height = tall, tile.width = NEUREKA_PIXELS;
        begin_runs(k, &tile, x_row, x_column, is_first);
    }
    if (rest) {
        tile.x += (rt_address)(tall * tile.x_row), tile.y += (rt_address)(tall * tile.y_row);
        tile.height = 1, tile.width = rest;
        begin_runs(k, &tile, x_row, x_column, is_first && !tall);
    }
}

/* All blocks of an image. */
static void convolve_blocks(const struct neureka_runs *k, const uint8_t *image, int is_copied,
                            struct neureka_tile tile) {
    const int32_t channels_out = tile.channels_out;
    tile.x = is_copied ? (rt_address)k->padded : (rt_address)image;
    for (int32_t done = 0; done < channels_out; done += k->block_out) {
        tile.channels_out = channels_out - done < k->block_out ? channels_out - done : k->block_out;
        convolve(k, tile, is_copied ? down(k) : k->x_row, is_copied ? across(k) : k->x_column, !done);
        tile.x += (rt_address)(k->rows * k->columns * k->block);
        tile.y += (rt_address)(k->block_out * (int32_t)sizeof(int32_t));
        tile.weights += (rt_address)(k->block_out * k->w_channel);
    }
}

/* Leaves one job that was not waited for. */
void KERNEL(const struct neureka_runs *k) {
    const int is_copied = UPRIGHT || IN_BLOCKS || k->top || k->left || k->rows > k->height || k->columns > k->width;
    struct neureka_tile tile = k->tile;
    for (int32_t image = 0; image < k->images; image++, tile.y += (rt_address)k->y_image) {
        struct source source = {k, (const uint8_t *)k->x + image * k->x_image};
        if (image) rt_job_wait(k->accelerator);
        if (is_copied && k->cores > 1) rt_fork(k->cores, copy_share, &source);
        if (is_copied && k->cores == 1) copy_share(&source);
        convolve_blocks(k, source.image, is_copied, tile);
    }
}
