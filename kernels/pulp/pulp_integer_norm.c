/* Norms of dense rows of bytes. The deviation of a row divides all its elements: they are multiplied by an inverse of
 * it.
 *
 * Products of elements and weights lie within 29 bits. With 2^length >= deviation, length at least 1, the inverse is
 * floor(2^(29 + length) / deviation) + 1: the product with it, shifted right by 29 + length, is the quotient rounded
 * towards minus infinity, where it is no whole number, and one less than the quotient towards zero where it is negative
 * (Granlund and Montgomery, Division by invariant integers using multiplication, theorem 5.1).
 */
#include "pulp_integer_norm.h"

#include "pulp_rows.h"
#include "xpulp.h"

enum { IS_SIGNED = (X_T)-1 < 0, FRACTION = 29 };

struct row {
    int32_t mean, inverse;
    int length;
};

static inline int32_t dot4(uint32_t a, uint32_t b, int32_t acc) {
    return IS_SIGNED ? xp_sdotsp(a, b, acc) : xp_sdotup(a, b, acc);
}

/* The largest number whose square is at most `value`, below 2^18. */
static inline int32_t root(int32_t value) {
    int32_t result = 0, bit = 256;
    XP_UNKNOWN(bit);
    for (; bit; bit >>= 1) result += (result + bit) * (result + bit) <= value ? bit : 0;
    return result;
}

/* A deviation is at least 1 and at most 2^8. */
static inline struct row inverted(int32_t mean, int32_t deviation) {
    int length = 1;
    while (1 << length < deviation) length++;
    const uint32_t whole = (1u << FRACTION) / (uint32_t)deviation, rest = (1u << FRACTION) % (uint32_t)deviation;
    return (struct row){mean, (int32_t)((whole << length) + (rest << length) / (uint32_t)deviation + 1), length};
}

#ifdef CENTRED
#define ADD(word) total = dot4(word, 0x01010101, total), squares = dot4(word, word, squares)
#define DOT(word) \
    ".insn r 0x57, 1, %[dot], %[total], " word ", %[ones]\n.insn r 0x57, 1, %[dot], %[squares], " word ", " word "\n"
enum { INSTRUCTIONS = 6 };
#else
#define ADD(word) squares = dot4(word, word, squares)
#define DOT(word) ".insn r 0x57, 1, %[dot], %[squares], " word ", " word "\n"
enum { INSTRUCTIONS = 4 };
#endif

/* Of the squares of all distances from the mean: their sum is that of the elements' squares, less what the mean makes.
 */
static inline struct row measure(const X_T *x, int columns) {
    int32_t squares = 0, mean = 0, total = 0;
    if (columns & 3) {
        const uint32_t word = xp_load_end(x, columns, columns & 3);
        ADD(word);
    }
#ifdef XPULP_INSN
    if (columns >= 8)
        __asm__ volatile(
            ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[n], %[length]\n"
            ".insn i 0x0b, 2, t0, %[x], 4\n.insn i 0x0b, 2, t1, %[x], 4\n" DOT("t0") DOT("t1") ".option pop\n"
            : [x] "+r"(x), [squares] "+r"(squares), [total] "+r"(total)
            : [n] "r"(columns >> 3), [length] "i"(2 * INSTRUCTIONS), [ones] "r"(0x01010101),
              [dot] "i"(IS_SIGNED ? XP_SDOTSP : XP_SDOTUP)
            : "t0", "t1", "memory");
    if (columns & 4) {
        const uint32_t word = xp_load(x);
        ADD(word);
    }
#else
    for (int i = columns >> 2; i > 0; i--, x += 4) {
        const uint32_t word = xp_load(x);
        ADD(word);
    }
#endif
#ifdef CENTRED
    mean = total / columns;
    squares += mean * (columns * mean - 2 * total);
#else
    (void)total;
#endif
    return inverted(mean, root(squares / columns + 1));
}

static inline void scale(const struct pulp_integer_norm *k, const X_T *x, Y_T *y, struct row row) {
    const WEIGHT_T *weight = (const WEIGHT_T *)k->weight;
#ifdef CENTRED
    const BIAS_T *bias = (const BIAS_T *)k->bias;
#endif
#ifdef XPULP_INSN
#define LOADS(type) ((sizeof(type) == 4 ? 2 : (int)sizeof(type) - 1) | ((type)-1 > 0 ? 4 : 0))
#ifdef CENTRED
#define BEGIN "sub t0, t0, %[mean]\n"
#define MIDDLE ".insn i 0x0b, %[bias_load], t0, %[bias], %[bias_bytes]\n"
#define END "add t1, t1, t0\nsra t1, t1, %[shift]\n"
#else
#define BEGIN
#define MIDDLE
#define END "sra t1, t1, %[shift]\n.insn r 0x33, 5, 0x0a, t1, t1, %[high]\n"
#endif
    __asm__ volatile(
        ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[n], %[length]\n"
        ".insn i 0x0b, %[x_load], t0, %[x], 1\n.insn i 0x0b, %[weight_load], t2, %[weight], %[weight_bytes]\n" BEGIN
        "mul t2, t0, t2\nslli t1, t2, 2\nmulh t1, t1, %[inverse]\n" MIDDLE
        "srli t2, t2, 31\nsra t1, t1, %[right]\nadd t1, t1, t2\n" END ".insn s 0x2b, 0, t1, 1(%[y])\n.option pop\n"
        : [x] "+r"(x), [weight] "+r"(weight), [y] "+r"(y)
#ifdef CENTRED
                                                  ,
          [bias] "+r"(bias)
#endif
        : [n] "r"(k->extent[LAST]), [inverse] "r"(row.inverse), [right] "r"(row.length - 1), [shift] "r"(k->shift),
          [x_load] "i"(LOADS(X_T)), [weight_load] "i"(LOADS(WEIGHT_T)), [weight_bytes] "i"(sizeof(WEIGHT_T)),
#ifdef CENTRED
          [mean] "r"(row.mean), [bias_load] "i"(LOADS(BIAS_T)), [bias_bytes] "i"(sizeof(BIAS_T)), [length] "i"(2 * 13)
#else
          [high] "r"(127), [length] "i"(2 * 11)
#endif
        : "t0", "t1", "t2", "memory");
#else
    for (int i = 0; i < k->extent[LAST]; i++) {
        const int32_t product = (x[i] - row.mean) * weight[i];
        const int32_t quotient = (xp_mulh(product * 4, row.inverse) >> (row.length - 1)) + (product < 0);
#ifdef CENTRED
        y[i] = (Y_T)((quotient + bias[i]) >> k->shift);
#else
        y[i] = (Y_T)xp_clip(quotient >> k->shift, 127);
#endif
    }
#endif
}

void KERNEL(const struct pulp_integer_norm *k) {
    int index[AXES] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + row_offset(index, k->x_step);
        scale(k, x + k->first, (Y_T *)k->y + row_offset(index, k->y_step), measure(x, k->columns));
    } while (next_row(index, k->extent));
}
