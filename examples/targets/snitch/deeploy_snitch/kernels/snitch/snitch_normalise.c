/* Norms of float rows of an even length: sums and squares are repeated instructions over a stream. Other rows are
 * computed as the portable kernel does. */
#include "../portable/normalise.h"

#include <math.h>

#include "../portable/loops.h"
#include "snitch_rows.h"

/* y = (x - mean) * factor * scale + offset, of eight pairs; x, scale and offset are streams. */
static inline void scale_group(struct streams *streams, float *y, int has_offset, pair mean, pair factor) {
#ifdef __riscv
#define SCALED                                                                     \
    ".insn i 0x0B, 7, x3, %[each], 0\n .insn r 0x33, 0, 0x42, f8, ft0, %[mean]\n"  \
    ".insn i 0x0B, 7, x7, %[each], 0\n .insn r 0x33, 0, 0x43, f8, f8, %[factor]\n" \
    ".insn i 0x0B, 7, x7, %[each], 0\n .insn r 0x33, 0, 0x43, f8, f8, ft1\n"
#define OFFSET ".insn i 0x0B, 7, x7, %[each], 0\n .insn r 0x33, 0, 0x41, f8, f8, ft2\n"
#define SCALE_OPERANDS [each] "r"(GROUP - 1), [mean] "f"(mean), [factor] "f"(factor), [y] "r"(y)
    (void)streams;
    if (has_offset)
        __asm__ volatile(SCALED OFFSET SUMS_8(STORE_SUM) : : SCALE_OPERANDS : CLOBBERED);
    else
        __asm__ volatile(SCALED SUMS_8(STORE_SUM) : : SCALE_OPERANDS : CLOBBERED);
#else
    for (int i = 0; i < GROUP; i++) {
        const pair d = pair_mul(pair_sub(stream_next(streams, FIRST), mean), factor);
        const pair value = pair_mul(d, stream_next(streams, SECOND));
        pair_store(y + 2 * i, has_offset ? pair_add(value, stream_next(streams, THIRD)) : value);
    }
#endif
}

static void paired_row(const struct normalise *k, const float *x, float *y) {
    const float *const scale = (const float *)k->scale, *const offset = (const float *)k->offset;
    const int columns = k->extent[LAST], pairs = columns / 2, groups = pairs / GROUP;
    const pair zero = pair_both(0);
    float mean = 0;
    struct streams streams;
    if (k->centred) mean = pair_sum(row_sum(x, pairs, zero, zero)) / (float)columns;
    const pair means = pair_both(mean);
    const float squares = pair_sum(row_squares(x, pairs, zero, means));
    const float factor = 1 / sqrtf(squares / (float)columns + k->epsilon);
    const pair factors = pair_both(factor);
    if (groups > 0) {
        STREAM_BEGIN(&streams, FIRST, 1, {(float *)x, 1, {groups * GROUP}, {2}});
        STREAM_BEGIN(&streams, SECOND, 1, {(float *)scale, 1, {groups * GROUP}, {2}});
        if (offset) STREAM_BEGIN(&streams, THIRD, 1, {(float *)offset, 1, {groups * GROUP}, {2}});
        streams_on();
        for (int i = 0; i < groups * 2 * GROUP; i += 2 * GROUP)
            scale_group(&streams, y + i, offset != 0, means, factors);
        streams_off();
    }
    for (int i = groups * 2 * GROUP; i < columns; i += 2) {
        const pair d = pair_mul(pair_sub(pair_load(x + i), means), factors), value = pair_mul(d, pair_load(scale + i));
        pair_store(y + i, offset ? pair_add(value, pair_load(offset + i)) : value);
    }
}

static void any_row(const struct normalise *k, const float *x, float *y) {
    const float *const scale = (const float *)k->scale, *const offset = (const float *)k->offset;
    const int columns = k->extent[LAST];
    float mean = 0, squares = 0;
    if (k->centred) {
        for (int i = 0; i < columns; i++) mean += x[i];
        mean /= (float)columns;
    }
    for (int i = 0; i < columns; i++) squares += (x[i] - mean) * (x[i] - mean);
    const float factor = 1 / sqrtf(squares / (float)columns + k->epsilon);
    for (int i = 0; i < columns; i++) {
        const float value = (x[i] - mean) * factor * scale[i];
        y[i] = offset ? value + offset[i] : value;
    }
}

void KERNEL(const struct normalise *k) {
    const int is_even = k->extent[LAST] % 2 == 0 && is_paired(k->scale) && is_paired(k->offset);
    int index[AXES] = {0};
    do {
        const float *const x = (const float *)k->x + row_offset(index, k->x_step);
        float *const y = (float *)k->y + row_offset(index, k->y_step);
        if (is_even && is_paired(x) && is_paired(y))
            paired_row(k, x, y);
        else
            any_row(k, x, y);
    } while (next_row(index, k->extent));
}
