/* Blocks of sums of products of floats in registers: four rows of a by four columns of b.
 *
 * Sums are added up in the order of the depth, products without having been rounded. 16 of them take 8 loads, 16
 * multiplications with additions, and one instruction for each operand whose four elements are neighbours, four where
 * they are not: 26 to 32. Two cores share a unit that multiplies, which bounds it.
 */
#ifndef DEEPLOY_PULP_FLOATS_H
#define DEEPLOY_PULP_FLOATS_H

#include <math.h>

#include "../portable/epilogue.h"
#include "xpulp.h"

enum { SIDE = 4, BLOCK = SIDE * SIDE };

/* Where rows of a and columns of b begin, up to four, and their steps in elements. */
struct factors {
    const float *a, *b;
    int rows, columns, a_row, a_depth, b_column, b_depth;
};

/* The registers of sums, row by row, and their places in memory. */
#define SUMS(each)                                                               \
    each("fs0", "fs1", "fs2", "fs3", "0") each("fs4", "fs5", "fs6", "fs7", "16") \
        each("fs8", "fs9", "fs10", "fs11", "32") each("ft8", "ft9", "ft10", "ft11", "48")
#define CLEAR(s0, s1, s2, s3, at) "fmv.w.x " s0 ", x0\nfmv.w.x " s1 ", x0\nfmv.w.x " s2 ", x0\nfmv.w.x " s3 ", x0\n"
#define MOVE(op, s0, s1, s2, s3, at, from)                                                                     \
    op " " s0 ", " at "+0(%[" from "])\n" op " " s1 ", " at "+4(%[" from "])\n" op " " s2 ", " at "+8(%[" from \
       "])\n" op " " s3 ", " at "+12(%[" from "])\n"
#define ADD(s0, s1, s2, s3) \
    "fadd.s " s0 ", " s0 ", ft0\nfadd.s " s1 ", " s1 ", ft1\nfadd.s " s2 ", " s2 ", ft2\nfadd.s " s3 ", " s3 ", ft3\n"
#define ZERO(s0, s1, s2, s3, at) MOVE("sw", "x0", "x0", "x0", "x0", at, "sums")
#define RESUME(s0, s1, s2, s3, at) MOVE("flw", s0, s1, s2, s3, at, "sums")
#define ADD_UP(s0, s1, s2, s3, at) MOVE("flw", "ft0", "ft1", "ft2", "ft3", at, "sums") ADD(s0, s1, s2, s3)
#define KEEP(s0, s1, s2, s3, at) MOVE("fsw", s0, s1, s2, s3, at, "sums")
#define MULTIPLY(x, s0, s1, s2, s3)                                                                           \
    "fmadd.s " s0 ", " x ", fa4, " s0 "\nfmadd.s " s1 ", " x ", fa5, " s1 "\nfmadd.s " s2 ", " x ", fa6, " s2 \
    "\n"                                                                                                      \
    "fmadd.s " s3 ", " x ", fa7, " s3 "\n"
/* Four elements of an operand: neighbours by one pointer, others by four. */
#define FOUR(is_dense, p, f0, f1, f2, f3)                                                                     \
    EITHER(is_dense, MOVE("flw", f0, f1, f2, f3, "0", p "0") "add %[" p "0], %[" p "0], %[" p "_step]\n",     \
           "flw " f0 ", 0(%[" p "0])\nflw " f1 ", 0(%[" p "1])\nflw " f2 ", 0(%[" p "2])\nflw " f3 ", 0(%[" p \
           "3])\n"                                                                                            \
           "add %[" p "0], %[" p "0], %[" p "_step]\nadd %[" p "1], %[" p "1], %[" p                          \
           "_step]\n"                                                                                         \
           "add %[" p "2], %[" p "2], %[" p "_step]\nadd %[" p "3], %[" p "3], %[" p "_step]\n")

static inline void clear_block(float *sums) {
    XP_BLOCK(SUMS(ZERO) : : [sums] "r"(sums) : "memory"); /* where compilers would call memset */
    for (int i = 0; i < BLOCK && !XPULP_FLOATS; i++) sums[i] = 0;
}

#define FIRST(each) each("fs0", "fs1", "fs2", "fs3", "0")
#define ALL_SUMS(each) EITHER("%[single]", FIRST(each), SUMS(each))

/* sums[4 * r + c] = the sum of `depth` products, in runs of which each is added up by itself first; without runs (0),
 * products are added one by one to what the sums are. Of fewer rows or columns the last one is computed several times,
 * and of a single row the others are not. Constants choose instructions. */
FOLDED void add_block(float *sums, const struct factors *f, int depth, int run, int is_single, int is_a_dense,
                      int is_b_dense) {
    const float *a0 = f->a, *a1 = a0 + (f->rows > 1) * f->a_row, *a2 = a1 + (f->rows > 2) * f->a_row;
    const float *b0 = f->b, *b1 = b0 + (f->columns > 1) * f->b_column, *b2 = b1 + (f->columns > 2) * f->b_column;
    const float *a3 = a2 + (f->rows > 3) * f->a_row, *b3 = b2 + (f->columns > 3) * f->b_column;
    if (run) clear_block(sums);
    for (int left = depth, count; left > 0; left -= count) {
        count = run && left > run ? run : left;
        XP_BLOCK(BEGIN EITHER("%[run]", ALL_SUMS(CLEAR), ALL_SUMS(RESUME))
                 ".insn i 0x7b, 4, x0, %[n], 2 * (32 - 18 * (%[single]) - 3 * (%[is_a]) - 3 * (%[is_b]))\n"
                 EITHER("%[single]", "flw fa0, 0(%[a0])\nadd %[a0], %[a0], %[a_step]\n",
                        FOUR("%[is_a]", "a", "fa0", "fa1", "fa2", "fa3"))
                 FOUR("%[is_b]", "b", "fa4", "fa5", "fa6", "fa7")
                 MULTIPLY("fa0", "fs0", "fs1", "fs2", "fs3")
                 IF("!(%[single])", MULTIPLY("fa1", "fs4", "fs5", "fs6", "fs7")
                    MULTIPLY("fa2", "fs8", "fs9", "fs10", "fs11") MULTIPLY("fa3", "ft8", "ft9", "ft10", "ft11"))
                 IF("%[run]", ALL_SUMS(ADD_UP)) ALL_SUMS(KEEP) END
                 : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [b0] "+r"(b0), [b1] "+r"(b1),
                   [b2] "+r"(b2), [b3] "+r"(b3)
                 : [n] "r"(count), [sums] "r"(sums), [a_step] "r"(f->a_depth * 4), [b_step] "r"(f->b_depth * 4),
                   [run] "i"(run), [single] "i"(is_single), [is_a] "i"(is_a_dense), [is_b] "i"(is_b_dense)
                 : "ft0", "ft1", "ft2", "ft3", "fa0", "fa1", "fa2", "fa3", "fa4", "fa5", "fa6", "fa7", "fs0", "fs1",
                   "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11", "ft8", "ft9", "ft10", "ft11",
                   "memory");
        for (int i = 0; i < (is_single ? SIDE : BLOCK) && !XPULP_FLOATS; i++) {
            const float *const rows[] = {a0, a1, a2, a3}, *const columns[] = {b0, b1, b2, b3};
            float sum = run ? 0 : sums[i];
            for (int d = 0; d < count; d++)
                sum = fmaf(rows[i / SIDE][d * f->a_depth], columns[i % SIDE][d * f->b_depth], sum);
            sums[i] = run ? sums[i] + sum : sum;
        }
        const int a_move = XPULP_FLOATS ? 0 : count * f->a_depth, b_move = XPULP_FLOATS ? 0 : count * f->b_depth;
        a0 += a_move, a1 += a_move, a2 += a_move, a3 += a_move;
        b0 += b_move, b1 += b_move, b2 += b_move, b3 += b_move;
    }
}

static inline float finished(float sum, const struct epilogue *e, int channel) {
    if (HAS_BIAS) sum += ((const float *)e->bias)[e->bias_step * channel];
    if (HAS_CLAMP) sum = sum < e->low_f ? e->low_f : sum, sum = sum > e->high_f ? e->high_f : sum;
    return sum;
}

/* Up to four sums of a row, which lie `next` apart in y; their channels are `step` apart. */
static inline void store(const struct epilogue *e, const float *sums, float *y, int next, int channel, int step,
                         int count) {
    if (count == SIDE) {
        y[0] = finished(sums[0], e, channel);
        y[next] = finished(sums[1], e, channel + step);
        y[2 * next] = finished(sums[2], e, channel + 2 * step);
        y[3 * next] = finished(sums[3], e, channel + 3 * step);
        return;
    }
    for (int c = 0; c < count; c++) y[c * next] = finished(sums[c], e, channel + c * step);
}

#endif
