/* y[m, n] = epilogue(the sum over blocks of scale[n, block] * (the sum over k of a[m, k] * (b[n, k] - zero[n,
 * block]))); sums over blocks are floats.
 *
 * a is [batch, rows, depth], b [columns, depth], perhaps packed, scales and zeros [columns, blocks], y [batch, rows,
 * columns]. Parts of blocks are unpacked once for four rows: then a product is a quarter of a load of a, a load of what
 * was unpacked, and a multiplication and addition. Multiplications bound it, of single rows what unpacks.
 *
 * PART_T is the type of the sums of a block: int32_t where a holds integers, else float.
 */
#include "block_matmul.h"

#include "packed.h"

/* Local arrays. Stacks are short where no vector registers are, and a single row is faster without unpacked columns. */
#if defined(__riscv) && !defined(__riscv_vector)
enum { ROWS = 4, COLUMNS = 4, CHUNK = 8, HAS_ROW = 1 };
#else
enum { ROWS = 4, COLUMNS = 8, CHUNK = 32, HAS_ROW = 0 };
#endif

/* Elements of b, of which units hold one or several, and how many elements of B_T hold so many of them. */
#ifdef B_BITS
enum { UNIT = PACKED_UNIT(B_BITS), PER_UNIT = PACKED_PER_UNIT(B_BITS) };
#define ELEMENT(units, i) packed_element(units, i, B_BITS, B_IS_SIGNED)
#define STORED(count) PACKED_BYTES(count, B_BITS)
#else
enum { UNIT = 1, PER_UNIT = 1 };
#define ELEMENT(units, i) (units)[i]
#define STORED(count) (count)
#endif
#ifdef ZEROS_T
#define ZERO(k, n, block) ((const ZEROS_T *)(k)->zeros)[(n) * (k)->zeros_column + (block)]
#else
#define ZERO(k, n, block) 0
#endif

/* Elements of some columns, without their zero points: w[i][j] is element begin + i of column n + j. Blocks begin with
 * whole units, and only the last one of a column may end within one. */
static inline void unpack(const struct block_matmul *k, const B_T *b, int n, int columns, int begin, int count,
                          PART_T w[CHUNK][COLUMNS]) {
    for (int j = 0; j < columns; j++) {
        const B_T *unit = b + (n + j) * k->b_column + STORED(begin);
        const int zero = ZERO(k, n + j, begin / k->size);
        int i = 0;
        for (; i + PER_UNIT <= count; i += PER_UNIT, unit += UNIT) {
            for (int part = 0; part < PER_UNIT; part++) w[i + part][j] = (PART_T)(ELEMENT(unit, part) - zero);
        }
        for (int part = 0; i + part < count; part++) w[i + part][j] = (PART_T)(ELEMENT(unit, part) - zero);
    }
}

/* part[j] += sum over i of a[i] * w[i][j]. */
static inline void add(PART_T *restrict part, const A_T *a, PART_T w[CHUNK][COLUMNS], int count) {
    for (int i = 0; i < count; i++) {
        const PART_T value = (PART_T)a[i];
        for (int j = 0; j < COLUMNS; j++) part[j] += value * w[i][j];
    }
}

/* One row of y and some columns, the last one several times where there are fewer. */
OUT_OF_LINE void row(const struct block_matmul *k, const A_T *a, const B_T *b, Y_T *y, int n, int columns) {
    const B_T *units[COLUMNS];
    float acc[COLUMNS] = {0};
    for (int j = 0; j < COLUMNS; j++) units[j] = b + (n + (j < columns ? j : columns - 1)) * k->b_column;
    for (int begin = 0, block = 0; begin < k->depth; begin += k->size, block++) {
        const int end = k->depth - begin < k->size ? k->depth : begin + k->size;
        PART_T part[COLUMNS] = {0};
        int zeros[COLUMNS];
        for (int j = 0; j < COLUMNS; j++) zeros[j] = ZERO(k, n + (j < columns ? j : columns - 1), block);
        for (int i = begin; i < end; i += PER_UNIT) {
            B_T unit[COLUMNS][UNIT];
            for (int j = 0; j < COLUMNS; j++) {
                for (int at = 0; at < UNIT && (at == 0 || at < STORED(end - i)); at++) unit[j][at] = *units[j]++;
            }
            for (int of = 0; of < PER_UNIT && i + of < end; of++) {
                const PART_T value = (PART_T)a[i + of];
                for (int j = 0; j < COLUMNS; j++) part[j] += value * (PART_T)(ELEMENT(unit[j], of) - zeros[j]);
            }
        }
        for (int j = 0; j < columns; j++) acc[j] += (float)part[j] * k->scales[(n + j) * k->scales_column + block];
    }
    finish_row(acc, y + n, &k->epilogue, n, columns);
}

/* Some rows and columns of y. */
OUT_OF_LINE void tile(const struct block_matmul *k, const A_T *a, const B_T *b, Y_T *y, int rows, int n, int columns) {
    PART_T w[CHUNK][COLUMNS] = {{0}};
    float acc[ROWS][COLUMNS] = {{0}};
    for (int begin = 0, block = 0; begin < k->depth; begin += k->size, block++) {
        const int end = k->depth - begin < k->size ? k->depth : begin + k->size;
        PART_T part[ROWS][COLUMNS] = {{0}};
        for (int at = begin; at < end; at += CHUNK) {
            const int count = end - at < CHUNK ? end - at : CHUNK;
            unpack(k, b, n, columns, at, count, w);
            for (int m = 0; m < rows; m++) add(part[m], a + m * k->a_row + at, w, count);
        }
        for (int j = 0; j < columns; j++) {
            const float scale = k->scales[(n + j) * k->scales_column + block];
            for (int m = 0; m < rows; m++) acc[m][j] += (float)part[m][j] * scale;
        }
    }
    for (int m = 0; m < rows; m++) finish_row(acc[m], y + m * k->y_row + n, &k->epilogue, n, columns);
}

void KERNEL(const struct block_matmul *k) {
    const int *const batch = k->batch;
    int index[4] = {0};
    for (int left = batch[0] * batch[1] * batch[2] * batch[3]; left > 0; left--) {
        const A_T *a = (const A_T *)k->a;
        Y_T *y = (Y_T *)k->y;
        for (int axis = 0; axis < 4; axis++) a += index[axis] * k->a_batch[axis], y += index[axis] * k->y_batch[axis];
        for (int m = 0; m < k->rows; m += ROWS) {
            const int rows = k->rows - m < ROWS ? k->rows - m : ROWS;
            for (int n = 0; n < k->columns; n += COLUMNS) {
                const int columns = k->columns - n < COLUMNS ? k->columns - n : COLUMNS;
                const A_T *const from = a + m * k->a_row;
                if (HAS_ROW && rows == 1) {
                    row(k, from, (const B_T *)k->b, y + m * k->y_row, n, columns);
                } else {
                    tile(k, from, (const B_T *)k->b, y + m * k->y_row, rows, n, columns);
                }
            }
        }
        for (int axis = 3; axis >= 0 && ++index[axis] == batch[axis]; axis--) index[axis] = 0;
    }
}
