/* y = clip((x * weight / deviation) >> shift), or CENTRED (((x - mean) * weight / deviation) + bias) >> shift, of rows
 * of bytes, in whole numbers: the deviation is the root of the mean of squares and one.
 *
 * x and y are rows with dense columns, any strides along five more axes; weight and bias have one entry per column.
 * Measuring takes 4 instructions for eight elements, 6 CENTRED, and writing 22 for two, 26 CENTRED: instructions bound
 * it.
 *
 * The deviation of a row divides all its elements: they are multiplied by an inverse of it.
 *
 * Products of elements and weights lie within 29 bits. With 2^length >= deviation, length at least 1, the inverse is
 * floor(2^(29 + length) / deviation) + 1: the product with it, shifted right by 29 + length, is the quotient rounded
 * towards minus infinity, where it is no whole number, and one less than the quotient towards zero where it is negative
 * (Granlund and Montgomery, Division by invariant integers using multiplication, theorem 5.1).
 */
#include "pulp_integer_norm.h"

#include "../portable/kernel_instance.h"
#include "pulp_rows.h"
enum { WITH_TOTAL = CENTRED };
#include "pulp_squares.h"

enum { FRACTION = 29 };

struct row {
    int32_t mean, inverse;
    int length;
};

/* The largest number whose square is at most `value`, below 2^18. */
static inline int32_t root(int32_t value) {
    int32_t result = 0, bit = 256;
    XP_UNKNOWN(bit);
    for (; bit; bit >>= 1) result += (result + bit) * (result + bit) <= value ? bit : 0;
    return result;
}

/* A deviation is at least 1 and at most 2^8. */
static inline struct row inverted(int32_t mean, int32_t deviation) {
    const int length = deviation > 2 ? xp_last_bit((uint32_t)deviation - 1) + 1 : 1;
    const uint32_t whole = (1u << FRACTION) / (uint32_t)deviation,
                   rest = (1u << FRACTION) - whole * (uint32_t)deviation;
    return (struct row){mean, (int32_t)((whole << length) + (rest << length) / (uint32_t)deviation + 1), length};
}

/* Of the squares of all distances from the mean: their sum is that of the elements' squares, less what the mean makes.
 */
static inline struct row measure(const X_T *x, int columns) {
    struct sums s = sums_of(x, columns);
    int32_t mean = 0;
    if (CENTRED) {
        mean = s.total / columns;
        s.squares += mean * (columns * mean - 2 * s.total);
    }
    return inverted(mean, root(s.squares / columns + 1));
}

#define LOADS(type) ((sizeof(type) == 4 ? 2 : (int)sizeof(type) - 1) | ((type) - 1 > 0 ? 4 : 0))
/* Steps of an element, in registers for it, its weight and product, and its quotient. */
#define ELEMENT(x, w, q) ".insn i 0x0b, %[x_load], " x ", %[x], 1\n"
#define WEIGHT(x, w, q) ".insn i 0x0b, %[weight_load], " w ", %[weight], %[weight_bytes]\n"
#define PRODUCT(x, w, q) "mul " w ", " x ", " w "\n"
#define RAISE(x, w, q) "slli " q ", " w ", 2\n"
#define HIGH(x, w, q) "mulh " q ", " q ", %[inverse]\n"
#define SIGN(x, w, q) "srli " w ", " w ", 31\n"
#define RIGHT(x, w, q) "sra " q ", " q ", %[right]\n"
#define TOWARDS_ZERO(x, w, q) "add " q ", " q ", " w "\n"
#define SHIFT(x, w, q) "sra " q ", " q ", %[shift]\n"
#define STORE(x, w, q) ".insn s 0x2b, 0, " q ", 1(%[y])\n"
#define DISTANCE(x, w, q) IF("%[centred]", "sub " x ", " x ", %[mean]\n")
#define BIAS(x, w, q) IF("%[centred]", ".insn i 0x0b, %[bias_load], " x ", %[bias], %[bias_bytes]\n")
#define PLUS_BIAS(x, w, q) IF("%[centred]", "add " q ", " q ", " x "\n")
#define CLIP(x, w, q) EITHER("%[centred]", "", XP_CLIP(q, q, "%[high]"))
enum { STEPS = CENTRED ? 13 : 11 };
#define ONE(STEP) STEP("t0", "t1", "t2")
#define TWO(STEP) STEP("t0", "t1", "t2") STEP("t3", "t4", "t5")
#define EVERY(OF) \
    OF(ELEMENT)   \
    OF(WEIGHT)    \
    OF(DISTANCE)  \
    OF(PRODUCT)   \
    OF(RAISE) OF(HIGH) OF(BIAS) OF(SIGN) OF(RIGHT) OF(TOWARDS_ZERO) OF(PLUS_BIAS) OF(SHIFT) OF(CLIP) OF(STORE)
#define OPERANDS                                                                                              \
    [inverse] "r"(row.inverse), [right] "r"(row.length - 1), [shift] "r"(k->shift), [x_load] "i"(LOADS(X_T)), \
        [weight_load] "i"(LOADS(WEIGHT_T)), [weight_bytes] "i"(sizeof(WEIGHT_T)), [mean] "r"(row.mean),       \
        [high] "r"(127), [centred] "i"(CENTRED), [bias_load] "i"(LOADS(BIAS_T)), [bias_bytes] "i"(sizeof(BIAS_T))
#define POINTERS [x] "+r"(x), [weight] "+r"(weight), [y] "+r"(y), [bias] "+r"(bias)

/* Two at a time: few instructions wait for the one before them. */
static inline void scale(const struct pulp_integer_norm *k, const X_T *x, Y_T *y, struct row row) {
    const WEIGHT_T *weight = (const WEIGHT_T *)k->weight;
    const BIAS_T *bias = CENTRED ? (const BIAS_T *)k->bias : 0;
    if (XPULP_INSN) {
        if (k->extent[LAST] & 1) XP_BLOCK(EVERY(ONE) : POINTERS:OPERANDS : "t0", "t1", "t2", "memory");
        if (k->extent[LAST] > 1)
            XP_BLOCK(BEGIN ".insn i 0x7b, 4, x0, %[n], %[length]\n" EVERY(TWO) END:POINTERS :
                     [n] "r"(k->extent[LAST] >> 1), [length] "i"(4 * STEPS), OPERANDS : "t0", "t1", "t2", "t3", "t4",
                     "t5", "memory");
        return;
    }
    for (int i = 0; i < k->extent[LAST]; i++) {
        const int32_t product = (x[i] - row.mean) * weight[i];
        const int32_t quotient = (xp_mulh(product * 4, row.inverse) >> (row.length - 1)) + (product < 0);
        y[i] = (Y_T)(CENTRED ? (quotient + bias[i]) >> k->shift : xp_clip(quotient >> k->shift, 127));
    }
}

void KERNEL(const struct pulp_integer_norm *k) {
    int index[AXES] = {0}, x_at = 0, y_at = 0;
    do {
        const X_T *const row = (const X_T *)k->x + x_at;
        scale(k, row + k->first, (Y_T *)k->y + y_at, measure(row, k->columns));
    } while (next_rows(index, k->extent, k->x_step, &x_at, k->y_step, &y_at, 0, 0));
}
