/* Rows of a product, and what becomes of its accumulators.
 *
 * An instance has DEPTH_REST where the depth is no multiple of 4, and DEPTH_VARIES too where it may be one; RUNS where
 * rows of x lie in several runs; ZEROS where x and w have zero points: then every row of x has a summand, and every
 * filter one in place of its bias (see pulp_zeros.h). Sources of kernels say OUT_T, the type that products are left in:
 * Y_T, or int32_t where they are IS_PARTIAL, which adds them to sums (see pulp_sums.h).
 */
#ifndef DEEPLOY_PULP_RESULT_H
#define DEEPLOY_PULP_RESULT_H

#include <stddef.h>

#include "pulp_dots.h"
#include "pulp_finish.h"
#include "pulp_product.h"

/* The operand `sdot` of blocks, with flags. */
enum { SDOT_WITH_FLAGS = (int)SDOT | RUNS << 8 | ZEROS << 9 };
#define HAS_RUNS "(%[sdot] & 256)"
#define HAS_ZEROS "(%[sdot] & 512)"

/* Some rows of x: where they begin, how far apart they lie, with RUNS of how many runs of as many words each row
 * consists, and how far it is from the end of one to the next, and with ZEROS what is added to the products of each. */
struct rows {
    const X_T *x;
    OUT_T *y;
    int x_step, y_step, count;
    int runs, words, skip;
    const int32_t *sums;
};

static inline int runs_of(const struct rows *r) {
    return RUNS ? r->runs : 1;
}

static inline int skip_of(const struct rows *r) {
    return RUNS ? r->skip : 0;
}

static inline int words_of_run(const struct pulp_product *p, const struct rows *r) {
    return RUNS ? r->words : p->depth >> 2;
}

/* What is added to a row, of which `sums` are those from the first one on. */
static inline int32_t row_sum(const int32_t *sums, int row) {
    return ZEROS ? sums[row] : 0;
}

static inline const int32_t *later_sums(const int32_t *sums, int rows) {
    return ZEROS ? sums + rows : sums;
}

/* What all rows have; those with runs or sums have more. */
static inline void set_rows(struct rows *r, const X_T *x, int x_step, OUT_T *y, int y_step, int count) {
    r->x = x, r->x_step = x_step, r->y = y, r->y_step = y_step, r->count = count;
}

/* On to the rows behind those that `r` has, of which there are `left`. */
static inline void skip_rows(struct rows *r, int left) {
    if (ZEROS) r->sums += r->count;
    r->x += r->count * r->x_step, r->y += r->count * r->y_step, r->count = left;
}

/* Whether a row ends within a word: only one whose depth is no multiple of 4 may have no whole words. */
static inline int has_rest(const struct pulp_product *p) {
    return DEPTH_VARIES ? (p->depth & 3) != 0 : DEPTH_REST;
}

static inline int has_words(int words) {
    return !DEPTH_REST || words != 0;
}

/* Operands of the epilogue from a channel on. */
static inline struct operands operands_of(const struct pulp_product *p, int channel) {
    return operands_at(&p->epilogue, &p->requantisation, channel);
}

/* What an accumulator becomes. */
static inline int32_t result(int32_t acc, const struct stages *s, const struct pulp_product *p) {
    return IS_PARTIAL ? acc : finish_with(acc, s, &p->epilogue, &p->requantisation);
}

static inline void leave(OUT_T *y, int32_t value) {
    *y = (OUT_T)(IS_PARTIAL ? *y + value : value);
}

/* The epilogue of one accumulator of the `i`-th channel of a group. */
static inline int32_t finish(int32_t acc, int i, struct operands s, const struct pulp_product *p) {
    const struct stages stages = stages_of(s, i);
    return finish_with(acc, &stages, &p->epilogue, &p->requantisation);
}

static inline void finish_1(int32_t acc, OUT_T *y, int i, struct operands s, const struct pulp_product *p) {
    const struct stages stages = stages_of(s, i);
    leave(&y[i], result(acc, &stages, p));
}

/* The second one is the same as the first where the step is 0. */
static inline void finish_2(int32_t a, int32_t b, OUT_T *y, int step, int i, struct operands s,
                            const struct pulp_product *p) {
    const struct stages stages = stages_of(s, i);
    const int32_t first = result(a, &stages, p), second = result(b, &stages, p);
    leave(&y[i], first);
    if (!IS_PARTIAL || step) leave(&y[step + i], second);
}

/* With ZEROS, accumulators of four rows begin with what is added to them. */
static inline void finish_4(int32_t a, int32_t b, int32_t c, int32_t d, OUT_T *y, int step, int i, struct operands s,
                            const struct pulp_product *p) {
    struct stages stages = stages_of(s, i);
    if (ZEROS) stages.bias = 0;
    const int32_t first = result(a, &stages, p), second = result(b, &stages, p);
    const int32_t third = result(c, &stages, p), fourth = result(d, &stages, p);
    leave(&y[i], first), leave(&y[step + i], second), leave(&y[2 * step + i], third), leave(&y[3 * step + i], fourth);
}

#endif
