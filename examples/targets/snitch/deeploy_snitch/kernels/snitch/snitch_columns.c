/* Products of floats whose right operand is streamed: neighbouring columns of b are neighbours in memory, and their
 * number is even.
 *
 * Two neighbours of a row of b are multiplied by one number of a at a time.
 */
#include "snitch_batches.h"
#include "snitch_products.h"

/* So many pairs of columns from a first one on, of all rows. */
#define COLUMNS(lanes)                                                                                         \
    static void columns_##lanes(const struct matmul *k, const float *a, const float *b, float *y, int first) { \
        const int depth = k->depth, rows = k->rows, a_row = k->a_row, y_row = k->y_row;                        \
        const struct ends e = ends_of(&k->epilogue);                                                           \
        struct streams streams;                                                                                \
        float both[2] __attribute__((aligned(8)));                                                             \
        STREAM_STARTS(&streams, e, first, both, lanes, rows);                                                  \
        STREAM_BEGIN(&streams, SECOND, 3, {(float *)b + first, 1, {lanes, depth, rows}, {2, k->b_depth, 0}});  \
        streams_on();                                                                                          \
        for (int m = 0; m < rows; m++, a += a_row, y += y_row)                                                 \
            multiply_ones_##lanes(&streams, a, depth, 1, 0, y + first, &e);                                    \
        streams_off();                                                                                         \
    }
COLUMNS(16)
COLUMNS(8)
COLUMNS(4)
COLUMNS(2)
COLUMNS(1)

static void product(const struct matmul *k, const float *a, const float *b, float *y) {
    int first = 0;
    for (; first + 32 <= k->columns; first += 32) columns_16(k, a, b, y, first);
    for (; first + 16 <= k->columns; first += 16) columns_8(k, a, b, y, first);
    for (; first + 8 <= k->columns; first += 8) columns_4(k, a, b, y, first);
    for (; first + 4 <= k->columns; first += 4) columns_2(k, a, b, y, first);
    for (; first < k->columns; first += 2) columns_1(k, a, b, y, first);
}

void KERNEL(const struct matmul *k) {
    over_batch(k, product);
}
