/* Products of floats whose operands are streamed: rows of a and of a transposed b, of an even depth, at multiples of 8
 * bytes.
 *
 * Two neighbours of a row are multiplied at a time: sums of the even and of the odd elements are added at the end.
 * Eight columns are computed together, as a sum takes some cycles to become usable.
 */
#include "snitch_batches.h"
#include "snitch_products.h"

/* So many columns from a first one on, of all rows. */
#define COLUMNS(lanes)                                                                                         \
    static void columns_##lanes(const struct matmul *k, const float *a, const float *b, float *y, int first) { \
        const int pairs = k->depth / 2, rows = k->rows, row = k->y_row;                                        \
        const struct ends e = ends_of(&k->epilogue);                                                           \
        struct streams streams;                                                                                \
        pair start[lanes], sum[lanes];                                                                         \
        for (int j = 0; j < lanes; j++) start[j] = sum[j] = first_of(&e, first + j);                           \
        STREAM_BEGIN(&streams, FIRST, 2, {(float *)a, lanes, {pairs, k->rows}, {2, k->a_row}});                \
        STREAM_BEGIN(&streams, SECOND, 3,                                                                      \
                     {(float *)b + first * k->b_column, 1, {lanes, pairs, k->rows}, {k->b_column, 2, 0}});     \
        streams_on();                                                                                          \
        y += first;                                                                                            \
        for (int m = 0; m < rows; m++, y += row) {                                                             \
            multiply_##lanes(&streams, sum, pairs);                                                            \
            for (int j = 0; j < lanes; j++) pair_store_low(y + j, clamped(pair_total(start[j], sum[j]), &e));  \
        }                                                                                                      \
        streams_off();                                                                                         \
    }
COLUMNS(8)
COLUMNS(4)
COLUMNS(1)

static void product(const struct matmul *k, const float *a, const float *b, float *y) {
    int first = 0;
    for (; first + 8 <= k->columns; first += 8) columns_8(k, a, b, y, first);
    for (; first + 4 <= k->columns; first += 4) columns_4(k, a, b, y, first);
    for (; first < k->columns; first++) columns_1(k, a, b, y, first);
}

void KERNEL(const struct matmul *k) {
    over_batch(k, product);
}
