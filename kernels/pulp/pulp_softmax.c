/* Softmax of dense rows of bytes by a table of exponentials, where sums and numerators fit 32 bits.
 *
 * An instance defines ROUNDED where quotients are rounded half to even instead of down. The sum of a row divides all
 * its elements: with floor((2^32 - 1) / divisor) as its inverse a quotient is right, or too small by one. */
#include "../portable/table_softmax.h"

#include "pulp_rows.h"
#include "xpulp.h"

enum { IS_SIGNED = (X_T)-1 < 0 };

static inline uint32_t larger4(uint32_t a, uint32_t b) {
    return IS_SIGNED ? xp_max4(a, b) : xp_max4u(a, b);
}

static inline int32_t maximum(const X_T *x, int columns) {
    int32_t result = x[0];
    if (columns >= 4) {
        uint32_t most = xp_load(x + columns - 4);
        for (int i = 0; i + 4 < columns; i += 4) most = larger4(most, xp_load(x + i));
        most = larger4(most, most >> 16);
        most = larger4(most, most >> 8);
        return (X_T)(most & 255);
    }
    for (int i = 1; i < columns; i++) result = xp_max(result, x[i]);
    return result;
}

static inline uint32_t sum_of(const uint32_t *table, const X_T *x, int32_t max, int columns) {
    uint32_t sum = 0;
#ifdef XPULP_INSN
    __asm__ volatile(
        ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[n], 10\n"
        ".insn i 0x0b, %[load], t0, %[x], 1\nsub t0, %[max], t0\nslli t0, t0, 2\n"
        ".insn r 0x03, 7, 0x10, t0, %[table], t0\nadd %[sum], %[sum], t0\n.option pop\n"
        : [x] "+r"(x), [sum] "+r"(sum)
        : [n] "r"(columns), [load] "i"(IS_SIGNED ? 0 : 4), [max] "r"(max), [table] "r"(table)
        : "t0", "memory");
#else
    for (int i = 0; i < columns; i++) sum += table[max - x[i]];
#endif
    return sum;
}

/* What the elements of a row share. */
struct shares {
    const uint32_t *table;
    int32_t max;
    uint32_t levels, offset, divisor, inverse;
};

#ifdef XPULP_INSN
#ifdef ROUNDED
#define BEGIN "add t0, t0, %[offset]\n"
#define EVEN "sub t2, t0, %[divisor]\n.insn r 0x33, 5, 2, t0, t0, t2\nseqz t0, t0\nand t0, t0, t1\nsub t1, t1, t0\n"
enum { ROUNDING = 6 };
#else
#define BEGIN
#define EVEN
enum { ROUNDING = 0 };
#endif
#ifdef RESULTS_T
#define FIND ".insn r 0x03, 7, 0x20, t1, %[results], t1\nnop\n"
#define RESULTS (uintptr_t) k->results - (uintptr_t)(intptr_t)k->smallest
enum { FINDING = 2 };
#else
#define FIND
#define RESULTS 0
enum { FINDING = 0 };
#endif

static inline void divide(const struct table_softmax *k, const struct shares *s, const X_T *x, Y_T *y) {
    __asm__ volatile(
        ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[n], %[length]\n"
        ".insn i 0x0b, %[load], t0, %[x], 1\nsub t0, %[max], t0\nslli t0, t0, 2\n"
        ".insn r 0x03, 7, 0x10, t0, %[table], t0\nmul t0, t0, %[levels]\n" BEGIN
        "mulhu t1, t0, %[inverse]\n"
        ".insn r 0x33, 1, 0x21, t0, t1, %[divisor]\nsltu t2, t0, %[divisor]\nxori t2, t2, 1\nadd t1, t1, t2\n" EVEN
        "add t1, t1, %[zero]\n.insn r 0x33, 6, 2, t1, t1, %[low]\n.insn r 0x33, 4, 2, t1, t1, %[high]\n" FIND
        ".insn s 0x2b, %[store], t1, %[bytes](%[y])\n.option pop\n"
        : [x] "+r"(x), [y] "+r"(y)
        : [n] "r"(k->extent[LAST]), [length] "i"(2 * (14 + ROUNDING + FINDING)), [load] "i"(IS_SIGNED ? 0 : 4),
          [max] "r"(s->max), [table] "r"(s->table), [levels] "r"(s->levels), [offset] "r"(s->offset),
          [inverse] "r"(s->inverse), [divisor] "r"(s->divisor), [zero] "r"(k->zero_point), [low] "r"(k->low),
          [high] "r"(k->high), [results] "r"(RESULTS), [store] "i"(sizeof(Y_T) == 4 ? 2 : 0), [bytes] "i"(sizeof(Y_T))
        : "t0", "t1", "t2", "memory");
}
#else
static inline void divide(const struct table_softmax *k, const struct shares *s, const X_T *x, Y_T *y) {
    for (int i = 0; i < k->extent[LAST]; i++) {
        const uint32_t top = s->table[s->max - x[i]] * s->levels + s->offset;
        uint32_t quotient = (uint32_t)((uint64_t)top * s->inverse >> 32), rest = top - quotient * s->divisor;
        if (rest >= s->divisor) quotient++, rest -= s->divisor;
#ifdef ROUNDED
        quotient -= rest == 0 ? quotient & 1 : 0;
#endif
        const int32_t result = xp_max(k->low, xp_min(k->high, (int32_t)quotient + k->zero_point));
#ifdef RESULTS_T
        y[i] = ((const RESULTS_T *)k->results)[result - k->smallest];
#else
        y[i] = (Y_T)result;
#endif
    }
}
#endif

static inline void row(const struct table_softmax *k, const X_T *x, Y_T *y) {
    const uint32_t *const table = (const uint32_t *)k->table;
    const int32_t max = maximum(x, k->extent[LAST]);
    const uint32_t total = sum_of(table, x, max, k->extent[LAST]), sum = total ? total : 1;
#ifdef ROUNDED
    const uint32_t twice = 2, offset = sum;
#else
    const uint32_t twice = 1, offset = 0;
#endif
    const uint32_t divisor = twice * sum;
    divide(k, &(struct shares){table, max, twice * (uint32_t)k->levels, offset, divisor, UINT32_MAX / divisor}, x, y);
}

void KERNEL(const struct table_softmax *k) {
    int index[AXES] = {0};
    do {
        row(k, (const X_T *)k->x + row_offset(index, k->x_step), (Y_T *)k->y + row_offset(index, k->y_step));
    } while (next_row(index, k->extent));
}
