/* y[m, n] = epilogue(sum over k of a[m, k] * b[k, n]), of bytes, where b holds its rows densely and is no constant.
 *
 * a is [batch, rows, depth], b [batch, depth, columns], y [batch, rows, columns]. Columns of b are turned into rows
 * first, 16 bytes by 16 instructions and a loop's, which all rows of a share; then the inner loop is that of
 * pulp_matmul.c, 24 instructions for 64 products. One or two rows of a turn columns in registers, 19 instructions for
 * 16 products. Instructions bound it.
 */
#define X_T A_T
#define W_T B_T
#define OUT_T Y_T
enum { IS_PARTIAL = 0 };

#include "pulp_bytes.h"
#include "pulp_multiply.h"
#include "pulp_row_sums.h"
#include "pulp_matmul_columns.h"

enum { FEW = 2 /* rows, for which columns are not kept as rows */ };

#define LOWER_BYTES 0x05010400
#define UPPER_BYTES 0x07030602
#define ENDS 0x07060302
#define DOWN(to) ".insn r 0x0b, 7, 0x10, " to ", %[b], %[row]\n"

/* One row times four columns: blocks of four by four bytes of b become rows in registers. */
static inline void one_by_4(const struct pulp_matmul_columns *k, const A_T *a, const B_T *b, Y_T *y, int first) {
    int32_t c0 = 0, c1 = 0, c2 = 0, c3 = 0, s0 = 0, s1 = 0, s2 = 0, s3 = 0, sums_of_row[4] = {0};
    int i = k->product.depth >> 2;
    const int row = k->b_row, rest = k->product.depth & 3;
    if (ZEROS) sum_4(1, a, 0, k->product.depth, sums_of_row);
    if (XPULP_INSN && !ZEROS && i) {
        XP_BLOCK(BEGIN LOOP("%[n]", 19) DOWN("t0") DOWN("t1") DOWN("t2") DOWN("t3")
                     XP_LOAD("t6", "a") "mv t4, t0\n" XP_SHUFFLE("t4", "t1", "lower")
                         XP_SHUFFLE("t0", "t1", "upper") "mv t5, t2\n" XP_SHUFFLE("t5", "t3", "lower")
                             XP_SHUFFLE("t2", "t3", "upper") XP_PACK("t1", "t5", "t4") XP_SHUFFLE("t4", "t5", "ends")
                                 XP_PACK("t3", "t2", "t0") XP_SHUFFLE("t0", "t2", "ends") DOT("c0", "t6", "t1") DOT(
                                     "c1", "t6", "t4") DOT("c2", "t6", "t3") DOT("c3", "t6", "t0") END : [a] "+r"(a),
                 [b] "+r"(b), [c0] "+r"(c0), [c1] "+r"(c1), [c2] "+r"(c2), [c3] "+r"(c3) : [n] "r"(i), [row] "r"(row),
                 [lower] "r"(LOWER_BYTES), [upper] "r"(UPPER_BYTES), [ends] "r"(ENDS), [sdot] "i"(SDOT) : "t0", "t1",
                 "t2", "t3", "t4", "t5", "t6", "memory");
    }
    for (; i > 0 && !(XPULP_INSN && !ZEROS); i--, a += 4, b += 4 * row) {
        const uint32_t word = xp_load(a), r0 = xp_load(b), r1 = xp_load(b + row), r2 = xp_load(b + 2 * row);
        const uint32_t r3 = xp_load(b + 3 * row);
        const uint32_t t0 = xp_shuffle2(r0, r1, LOWER_BYTES), t1 = xp_shuffle2(r0, r1, UPPER_BYTES);
        const uint32_t t2 = xp_shuffle2(r2, r3, LOWER_BYTES), t3 = xp_shuffle2(r2, r3, UPPER_BYTES);
        const uint32_t v0 = xp_pack(t2, t0), v1 = xp_shuffle2(t0, t2, ENDS);
        const uint32_t v2 = xp_pack(t3, t1), v3 = xp_shuffle2(t1, t3, ENDS);
        c0 = dot4(word, v0, c0), c1 = dot4(word, v1, c1), c2 = dot4(word, v2, c2), c3 = dot4(word, v3, c3);
        if (ZEROS) {
            s0 = sum_word(0, v0, s0), s1 = sum_word(0, v1, s1);
            s2 = sum_word(0, v2, s2), s3 = sum_word(0, v3, s3);
        }
    }
    for (i = 0; i < rest; i++) {
        const B_T *const last = b + i * row;
        c0 = xp_mac(c0, a[i], last[0]), c1 = xp_mac(c1, a[i], last[1]);
        c2 = xp_mac(c2, a[i], last[2]), c3 = xp_mac(c3, a[i], last[3]);
        if (ZEROS) s0 += last[0], s1 += last[1], s2 += last[2], s3 += last[3];
    }
    if (ZEROS) {
        const int32_t of_row = -k->zeros->w * sums_of_row[0];
        int32_t *const sums = k->zeros->filters;
        c0 += of_row, c1 += of_row, c2 += of_row, c3 += of_row;
        sums[first] = filter_sum(&k->product, k->zeros, first, s0);
        sums[first + 1] = filter_sum(&k->product, k->zeros, first + 1, s1);
        sums[first + 2] = filter_sum(&k->product, k->zeros, first + 2, s2);
        sums[first + 3] = filter_sum(&k->product, k->zeros, first + 3, s3);
    }
    const struct pulp_product with_zeros = ZEROS ? with_sums(k->product, k->zeros) : k->product;
    const struct operands s = operands_of(ZEROS ? &with_zeros : &k->product, first);
    c0 = finish(c0, 0, s, &k->product), c1 = finish(c1, 1, s, &k->product);
    c2 = finish(c2, 2, s, &k->product), c3 = finish(c3, 3, s, &k->product);
    y[first] = (Y_T)c0, y[first + 1] = (Y_T)c1, y[first + 2] = (Y_T)c2, y[first + 3] = (Y_T)c3;
}

OUT_OF_LINE void few_rows(const struct pulp_matmul_columns *k, const A_T *a, const B_T *b, Y_T *y) {
    for (int i = 0; i < k->rows; i++) {
        for (int next = 0; next < k->columns; next += 4) {
            const int first = next + 4 <= k->columns ? next : k->columns - 4; /* the last four may begin earlier */
            one_by_4(k, a + i * k->a_row, b + first, y + i * k->y_row, first);
        }
    }
}

/* Four columns become rows that lie `w_row` apart: blocks of four by four bytes by shuffles. */
OUT_OF_LINE void turn(const struct pulp_matmul_columns *k, const B_T *b, B_T *to) {
    const int depth = k->product.depth, row = k->b_row, pitch = k->product.w_row;
    int i = depth;
    for (; i >= 4; i -= 4, b += 4 * row, to += 4) {
        const uint32_t r0 = xp_load(b), r1 = xp_load(b + row), r2 = xp_load(b + 2 * row), r3 = xp_load(b + 3 * row);
        const uint32_t t0 = xp_shuffle2(r0, r1, LOWER_BYTES), t1 = xp_shuffle2(r0, r1, UPPER_BYTES);
        const uint32_t t2 = xp_shuffle2(r2, r3, LOWER_BYTES), t3 = xp_shuffle2(r2, r3, UPPER_BYTES);
        xp_store(to, xp_pack(t2, t0)), xp_store(to + pitch, xp_shuffle2(t0, t2, ENDS));
        xp_store(to + 2 * pitch, xp_pack(t3, t1)), xp_store(to + 3 * pitch, xp_shuffle2(t1, t3, ENDS));
    }
    for (; i > 0; i--, b += row, to++) {
        to[0] = b[0], to[pitch] = b[1], to[2 * pitch] = b[2], to[3 * pitch] = b[3];
    }
    for (i = pitch - depth; i > 0; i--, to++) to[0] = to[pitch] = to[2 * pitch] = to[3 * pitch] = 0;
}

/* The same for fewer than four. */
OUT_OF_LINE void turn_few(const struct pulp_matmul_columns *k, const B_T *b, B_T *to) {
    for (int i = 0; i < k->product.depth; i++) {
        for (int j = 0; j < k->columns; j++) to[j * k->product.w_row + i] = b[i * k->b_row + j];
    }
}

/* The product with columns that were turned, the first of which is `first`. */
OUT_OF_LINE void by_turned(const struct pulp_matmul_columns *k, const A_T *a, Y_T *y, int first, int count) {
    struct rows r;
    set_rows(&r, a, k->a_row, y, k->y_row, k->rows);
    const B_T *const turned = (const B_T *)k->turned;
    struct pulp_product p = k->product;
    if (ZEROS) {
        sum_filters(&k->product, k->zeros, turned, first, count);
        p = with_sums(k->product, k->zeros), r.sums = k->zeros->rows;
    }
    p.filters = count;
    /* Zeros follow the columns, so that all rows but the last one may be read in whole words: three bytes of the next
     * row, at most. */
    if (count >= 4 && r.count > 4 && p.depth > 3 && p.depth < p.w_row) {
        const int depth = p.depth;
        r.count--, p.depth = p.w_row;
        struct rows whole = r;
        product(&p, &whole, turned, first);
        skip_rows(&r, 1), p.depth = depth;
    }
    product(&p, &r, turned, first);
}

/* As many columns at a time as there is room for: a core holds few instructions, and what turns, what adds up and what
 * multiplies push each other out. A last group of fewer than four begins among those before it. */
static inline void many_rows(const struct pulp_matmul_columns *k, const A_T *a, const B_T *b, Y_T *y) {
    for (int next = 0; next < k->columns; next += k->room) {
        const int left = k->columns - next, count = left < 4 ? 4 : left < k->room ? left : k->room;
        const int first = left < 4 ? k->columns - 4 : next;
        for (int i = 0; i < count; i += 4) {
            const int of = i + 4 <= count ? i : count - 4;
            turn(k, b + first + of, (B_T *)k->turned + of * k->product.w_row);
        }
        by_turned(k, a, y + first, first, count);
    }
}

void KERNEL(const struct pulp_matmul_columns *k) {
    const int is_few = k->rows <= FEW && k->columns >= 4;
    struct batch at = {{0}, 0, 0, 0};
    do {
        const A_T *const a = (const A_T *)k->a + at.a;
        const B_T *const b = (const B_T *)k->b + at.b;
        Y_T *const y = (Y_T *)k->y + at.y;
        if (is_few) {
            few_rows(k, a, b, y);
            continue;
        }
        if (ZEROS) {
            const struct rows rows = {.x = a, .x_step = k->a_row, .count = k->rows};
            sum_rows(k->zeros, &rows, k->product.depth);
        }
        if (k->columns < 4) {
            turn_few(k, b, (B_T *)k->turned);
            by_turned(k, a, y, 0, k->columns);
        } else
            many_rows(k, a, b, y);
    } while (k->batches && next_batch(&at, k->batches));
}
