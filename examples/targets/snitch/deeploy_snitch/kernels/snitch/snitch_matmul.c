/* Products of floats whose operands are streamed: rows of a and of a transposed b, of an even depth, at multiples of 8
 * bytes.
 *
 * A streaming register hands out the next operand whenever it is read, and a repetition of instructions for floating
 * point needs no loop. Two neighbours of a row are multiplied at a time (packed floats): sums of the even and of the
 * odd elements are added at the end. Four columns are computed together, as a sum takes three cycles to become usable.
 */
#include "../portable/matmul.h"

enum { COLUMNS = 4 };

#ifdef __riscv

/* Registers of a stream; the latter three for each of four loops. */
enum { REPEAT = 1, BOUNDS = 2, STRIDES = 6, FROM = 24 };

enum { ROW, COLUMN }; /* streams, read as ft0 and ft1 */

/* Bounds and repetitions are counted from 0; a stride leads on from where the inner loop has ended. */
#define STREAM(stream, what, value) \
    __asm__ volatile(".insn i 0x2B, 2, zero, %0, %1" ::"r"(value), "i"((what) << 5 | (stream)) : "memory")

/* frep.o: so many instructions, last + 1 times. */
#define REPEATED(sums) ".insn i 0x0B, 0, x1, %[last], " #sums " - 1\n"
#define ADD_TO(sum) ".insn r 0x33, 0, 0x48, " #sum ", ft0, ft1\n" /* vfmac.s */
/* Streams are read until all that was repeated is done, which a register that is read behind it tells. */
#define STREAMED(body) "csrsi 0x7C0, 1\n" body "fmv.x.w %[done], fa0\nmv zero, %[done]\ncsrci 0x7C0, 1\n"

static inline void set_streams(const struct matmul *k, int lanes) {
    const int pairs = k->depth / 2, apart = 4 * k->b_column;
    STREAM(ROW, REPEAT, lanes - 1);
    STREAM(ROW, BOUNDS, pairs - 1);
    STREAM(ROW, STRIDES, 8);
    STREAM(COLUMN, REPEAT, 0);
    STREAM(COLUMN, BOUNDS, lanes - 1);
    STREAM(COLUMN, STRIDES, apart);
    STREAM(COLUMN, BOUNDS + 1, pairs - 1);
    STREAM(COLUMN, STRIDES + 1, 8 - apart * (lanes - 1));
}

static inline void dots(const struct matmul *k, const float *a, const float *b, float *sums, int lanes) {
    union {
        double pair;
        float half[2];
    } zero = {.half = {0, 0}}, sum[COLUMNS];
    const int last = k->depth / 2 - 1;
    uint32_t done;
    register double s0 __asm__("ft3") = zero.pair, s1 __asm__("ft4") = zero.pair;
    register double s2 __asm__("ft5") = zero.pair, s3 __asm__("ft6") = zero.pair;
    STREAM(ROW, FROM, a);
    STREAM(COLUMN, FROM + 1, b);
    if (lanes == COLUMNS) {
        __asm__ volatile(STREAMED(REPEATED(4) ADD_TO(ft3) ADD_TO(ft4) ADD_TO(ft5) ADD_TO(ft6))
                         : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3), [done] "=&r"(done)
                         : [last] "r"(last)
                         : "ft0", "ft1", "ft2", "memory");
    } else {
        __asm__ volatile(STREAMED(REPEATED(1) ADD_TO(ft3))
                         : "+f"(s0), [done] "=&r"(done)
                         : [last] "r"(last)
                         : "ft0", "ft1", "ft2", "memory");
    }
    sum[0].pair = s0, sum[1].pair = s1, sum[2].pair = s2, sum[3].pair = s3;
    for (int j = 0; j < lanes; j++) sums[j] = sum[j].half[0] + sum[j].half[1];
}

#else

#include <math.h>

static inline void set_streams(const struct matmul *k, int lanes) {
    (void)k, (void)lanes;
}

static inline void dots(const struct matmul *k, const float *a, const float *b, float *sums, int lanes) {
    for (int j = 0; j < lanes; j++, b += k->b_column) {
        float even = 0, odd = 0;
        for (int d = 0; d < k->depth; d += 2) {
            even = fmaf(a[d], b[d], even);
            odd = fmaf(a[d + 1], b[d + 1], odd);
        }
        sums[j] = even + odd;
    }
}

#endif

/* So many columns from a first one on, of all rows. */
static void columns(const struct matmul *k, const float *a, const float *b, float *y, int first, int lanes) {
    float sums[COLUMNS];
    for (int m = 0; m < k->rows; m++) {
        dots(k, a + m * k->a_row, b + first * k->b_column, sums, lanes);
        for (int j = 0; j < lanes; j++) y[m * k->y_row + first + j] = finish(sums[j], &k->epilogue, first + j);
    }
}

static void product(const struct matmul *k, const int *index) {
    const float *a = (const float *)k->a, *b = (const float *)k->b;
    float *y = (float *)k->y;
    for (int axis = 0; axis < 4; axis++) {
        a += index[axis] * k->a_batch[axis];
        b += index[axis] * k->b_batch[axis];
        y += index[axis] * k->y_batch[axis];
    }
    int first = 0;
    set_streams(k, COLUMNS);
    for (; first + COLUMNS <= k->columns; first += COLUMNS) columns(k, a, b, y, first, COLUMNS);
    if (first < k->columns) set_streams(k, 1);
    for (; first < k->columns; first++) columns(k, a, b, y, first, 1);
}

void KERNEL(const struct matmul *k) {
    const int *const batch = k->batch;
    int index[4] = {0};
    for (int left = batch[0] * batch[1] * batch[2] * batch[3]; left > 0; left--) {
        product(k, index);
        for (int axis = 3; axis >= 0 && ++index[axis] == batch[axis]; axis--) index[axis] = 0;
    }
}
