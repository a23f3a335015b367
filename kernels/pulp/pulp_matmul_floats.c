/* y[m, n] = epilogue(sum over k of a[m, k] * b[k, n]), of floats that have any strides; products are not rounded before
 * they are added.
 *
 * Blocks of four rows and four columns, whose sums are registers (pulp_floats.h); products are added up in runs, after
 * each of which 16 sums are added to those in memory. Two cores share a unit that multiplies, which bounds it.
 */
#include "../portable/matmul.h"

#include "pulp_floats.h"

enum { RUN = 64 /* products that are added up before they enter a sum */ };

/* A product of matrices. Channels, which have biases, are columns, or rows where both operands are exchanged. */
struct float_product {
    struct factors factors;
    float *y;
    int rows, columns, depth, y_row, y_column, row_channel, column_channel;
    const struct epilogue *epilogue;
};

/* Four rows, or one. Constants choose instructions. */
FOLDED void blocks(const struct float_product *p, int row, int is_single, int is_a_dense, int is_b_dense) {
    struct factors f = p->factors;
    float sums[BLOCK];
    f.a += row * f.a_row;
    for (int next = 0; next < p->columns; next += SIDE) {
        const int column = next + SIDE <= p->columns || p->columns < SIDE ? next : p->columns - SIDE;
        f.b = p->factors.b + column * f.b_column;
        add_block(sums, &f, p->depth, RUN, is_single, is_a_dense, is_b_dense);
        for (int r = 0; r < (is_single ? 1 : f.rows); r++) {
            const int channel = (row + r) * p->row_channel + column * p->column_channel;
            float *const y = p->y + (row + r) * p->y_row + column * p->y_column;
            store(p->epilogue, sums + SIDE * r, y, p->y_column, channel, p->column_channel, f.columns);
        }
    }
}

#define BLOCKS(name, is_single, is_a_dense, is_b_dense)             \
    OUT_OF_LINE void name(const struct float_product *p, int row) { \
        blocks(p, row, is_single, is_a_dense, is_b_dense);          \
    }
BLOCKS(blocks_apart, 0, 0, 0)
BLOCKS(blocks_of_columns, 0, 0, 1)
BLOCKS(blocks_of_neighbours, 0, 1, 1)
BLOCKS(row_apart, 1, 0, 0)
BLOCKS(row_of_columns, 1, 0, 1)

/* Of more rows than four, the last block begins earlier; a last row is computed by itself. */
static inline void product(const struct float_product *p) {
    const struct factors *const f = &p->factors;
    const int has_columns = f->b_column == 1 && p->columns >= SIDE, has_rows = f->a_row == 1 && p->rows >= SIDE;
    int row = 0;
    for (; row + 1 < p->rows; row += SIDE) {
        const int first = row + SIDE <= p->rows || p->rows < SIDE ? row : p->rows - SIDE;
        if (!has_columns)
            blocks_apart(p, first);
        else if (!has_rows)
            blocks_of_columns(p, first);
        else
            blocks_of_neighbours(p, first);
    }
    if (row < p->rows) {
        if (has_columns)
            row_of_columns(p, row);
        else
            row_apart(p, row);
    }
}

static inline int least(int extent) {
    return extent < SIDE ? extent : SIDE;
}

void KERNEL(const struct matmul *k) {
    const int is_column = k->columns == 1, rows = is_column ? 1 : k->rows, columns = is_column ? k->rows : k->columns;
    struct float_product p = {
        .factors = {0, 0, least(rows), least(columns), k->a_row, k->a_depth, k->b_column, k->b_depth},
        .rows = rows,
        .columns = columns,
        .depth = k->depth,
        .y_row = is_column ? 1 : k->y_row,
        .y_column = is_column ? k->y_row : 1,
        .row_channel = is_column,
        .column_channel = !is_column,
        .epilogue = &k->epilogue,
    };
    if (is_column) p.factors = (struct factors){0, 0, 1, least(columns), k->b_column, k->b_depth, k->a_row, k->a_depth};
    int index[4] = {0};
    for (int left = k->batch[0] * k->batch[1] * k->batch[2] * k->batch[3]; left > 0; left--) {
        const float *a = (const float *)k->a, *b = (const float *)k->b;
        p.y = (float *)k->y;
        for (int axis = 0; axis < 4; axis++) {
            a += index[axis] * k->a_batch[axis];
            b += index[axis] * k->b_batch[axis];
            p.y += index[axis] * k->y_batch[axis];
        }
        p.factors.a = is_column ? b : a, p.factors.b = is_column ? a : b;
        product(&p);
        for (int axis = 3; axis >= 0 && ++index[axis] >= k->batch[axis]; axis--) index[axis] = 0;
    }
}
