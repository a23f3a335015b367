/* clip(x, low, high) of floats, eight pairs at a time where rows are neighbours. */
#include "../portable/clip.h"

#include "../portable/loops.h"
#include "snitch_rows.h"

/* min(max(x, low), high) of eight pairs of the first stream. */
static inline void clip_group(struct streams *streams, float *y, pair low, pair high) {
#ifdef __riscv
    (void)streams;
    __asm__ volatile(
        ".insn i 0x0B, 7, x3, %[each], 0\n .insn r 0x33, 0, 0x46, f8, ft0, %[low]\n"
        ".insn i 0x0B, 7, x7, %[each], 0\n .insn r 0x33, 0, 0x45, f8, f8, %[high]\n" SUMS_8(STORE_SUM)
        :
        : [each] "r"(GROUP - 1), [y] "r"(y), [low] "f"(low), [high] "f"(high)
        : CLOBBERED);
#else
    for (int i = 0; i < 2 * GROUP; i += 2)
        pair_store(y + i, pair_min(pair_max(stream_next(streams, FIRST), low), high));
#endif
}

void KERNEL(const struct clip *k) {
    const int x_step = k->x_step[LAST], y_step = k->y_step[LAST], count = k->extent[LAST];
    const pair low = pair_both(k->low_f), high = pair_both(k->high_f);
    int index[AXES] = {0};
    do {
        const float *const x = (const float *)k->x + row_offset(index, k->x_step);
        float *const y = (float *)k->y + row_offset(index, k->y_step);
        const int groups = x_step == 1 && y_step == 1 && is_paired(x) && is_paired(y) ? count / (2 * GROUP) : 0;
        struct streams streams;
        if (groups > 0) {
            STREAM_BEGIN(&streams, FIRST, 1, {(float *)x, 1, {groups * GROUP}, {2}});
            streams_on();
            for (int i = 0; i < groups; i++) clip_group(&streams, y + i * 2 * GROUP, low, high);
            streams_off();
        }
        for (int i = groups * 2 * GROUP; i < count; i++)
            pair_store_low(y + i * y_step, pair_min(pair_max(pair_both(x[i * x_step]), low), high));
    } while (next_row(index, k->extent));
}
