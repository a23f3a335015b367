/* Sums over rows of pairs that are streamed, and eight pairs at a time that are mapped: each line below is one
 * instruction that is repeated for all eight. */
#ifndef SNITCH_ROWS_H
#define SNITCH_ROWS_H

#include "snitch_streams.h"

enum { GROUP = 8 }; /* pairs that are mapped together */

static inline int is_paired(const void *from) {
    return ((uintptr_t)from & 7) == 0;
}

static inline float pair_sum(pair value) {
    float result;
    pair_store_low(&result, pair_total(pair_both(0), value));
    return result;
}

#ifdef __riscv

#define ADD_TO(sum) ".insn r 0x33, 0, 0x41, " sum ", " sum ", ft0\n"
#define LARGER(sum) ".insn r 0x33, 0, 0x46, " sum ", " sum ", ft0\n"
#define SQUARE_TO(sum, d) ".insn r 0x33, 0, 0x48, " sum ", " d ", " d "\n"
#define LESS_MEAN(d) ".insn r 0x33, 0, 0x42, " d ", ft0, %[mean]\n"
#define ALL_FOUR                                                   \
    : "=&f"(s[0]), "=&f"(s[1]), "=&f"(s[2]), "=&f"(s[3])                             \
    : [last] "r"(groups - 1), [start] "f"(start), [mean] "f"(mean)                   \
    : "memory", "ft8", "ft9", "ft10", "ft11"
#define START_FOUR "fmv.d %0, %[start]\n fmv.d %1, %[start]\n fmv.d %2, %[start]\n fmv.d %3, %[start]\n"

/* Four results over every fourth pair of the first stream, of which there are four times as many. */
static inline void sum_four(struct streams *streams, pair *s, pair start, pair mean, int groups) {
    (void)streams;
    __asm__ volatile(START_FOUR REPEAT(4) ADD_TO("%0") ADD_TO("%1") ADD_TO("%2") ADD_TO("%3") ALL_FOUR);
}

static inline void largest_four(struct streams *streams, pair *s, pair start, pair mean, int groups) {
    (void)streams;
    __asm__ volatile(START_FOUR REPEAT(4) LARGER("%0") LARGER("%1") LARGER("%2") LARGER("%3") ALL_FOUR);
}

static inline void squares_four(struct streams *streams, pair *s, pair start, pair mean, int groups) {
    (void)streams;
    __asm__ volatile(START_FOUR REPEAT(8) LESS_MEAN("ft8") LESS_MEAN("ft9") LESS_MEAN("ft10") LESS_MEAN(
        "ft11") SQUARE_TO("%0", "ft8") SQUARE_TO("%1", "ft9") SQUARE_TO("%2", "ft10") SQUARE_TO("%3", "ft11") ALL_FOUR);
}

#else

#define FOUR_OF(name, result)                                                                      \
    static inline void name(struct streams *streams, pair *s, pair start, pair mean, int groups) { \
        (void)mean;                                                                                \
        for (int j = 0; j < 4; j++) s[j] = start;                                                  \
        for (int group = 0; group < groups; group++) {                                             \
            for (int j = 0; j < 4; j++) {                                                          \
                const pair x = stream_next(streams, FIRST);                                        \
                s[j] = result;                                                                     \
            }                                                                                      \
        }                                                                                          \
    }
FOUR_OF(sum_four, pair_add(s[j], x))
FOUR_OF(largest_four, pair_max(s[j], x))
FOUR_OF(squares_four, pair_mac(s[j], pair_sub(x, mean), pair_sub(x, mean)))

#endif

/* Over the pairs of a row at a multiple of 8 bytes: their sum, the larger ones, the squares of their distances. */
#define OVER_ROW(name, four, combine, one)                                        \
    static inline pair name(const float *x, int pairs, pair start, pair mean) {   \
        struct streams streams;                                                   \
        pair s[4] = {start, start, start, start};                                 \
        const int groups = pairs / 4;                                             \
        (void)mean;                                                               \
        if (groups > 0) {                                                         \
            STREAM_BEGIN(&streams, FIRST, 1, {(float *)x, 1, {4 * groups}, {2}}); \
            streams_on();                                                         \
            four(&streams, s, start, mean, groups);                               \
            streams_off();                                                        \
        }                                                                         \
        for (int i = 4 * groups; i < pairs; i++) {                                \
            const pair value = pair_load(x + 2 * i), sum = s[0];                  \
            s[0] = one;                                                           \
        }                                                                         \
        return combine(combine(s[0], s[1]), combine(s[2], s[3]));                 \
    }
OVER_ROW(row_sum, sum_four, pair_add, pair_add(sum, value))
OVER_ROW(row_largest, largest_four, pair_max, pair_max(sum, value))
OVER_ROW(row_squares, squares_four, pair_add, pair_mac(sum, pair_sub(value, mean), pair_sub(value, mean)))

#endif
