/* (sum * factor + summand) >> shift of channel after channel, whose parameters stay in registers. The factor has two
 * parts, so that products have 32 bits: sum * high + (sum * low >> bits) is sum * factor >> bits.
 *
 * Beside the macros of docs/kernels.md an instance may have CLIP_WHOLE: low and high are the limits of Y_T. */
#include "pulp_requantise_sums.h"

#include "xpulp.h"

enum { AXES = REQUANTISE_SUMS_AXES, WIDE = -1 };

struct channel {
    int32_t low, high, bits; /* both parts of the factor, and the bits of the lower one */
    int32_t add, shift, centre, limit;
};

static inline int32_t within_output(const struct pulp_requantise_sums *k, int32_t value) {
#ifdef CLIP_WHOLE
    (void)k;
    return (Y_T)-1 < 0 ? xp_clip(value, 127) : xp_clipu(value, 255);
#else
    return xp_max(k->low, xp_min(k->high, value));
#endif
}

static inline Y_T output(const struct pulp_requantise_sums *k, int32_t value) {
#ifdef EPILOGUE_LOOKUP
    return ((const Y_T *)k->table)[value - k->low];
#else
    (void)k;
    return (Y_T)value;
#endif
}

static inline Y_T requantised(const struct pulp_requantise_sums *k, const struct channel *c, int32_t sum) {
    sum = xp_clip(sum + c->centre, c->limit);
    return output(k, within_output(k, xp_add_shift(xp_mac(sum * c->low >> c->bits, sum, c->high), c->add, c->shift)));
}

/* A channel of neighbouring pixels that needs 64 bits. */
OUT_OF_LINE void wide_pixels(const struct pulp_requantise_sums *k, const int32_t *sums, Y_T *y, int count, int number) {
    const int32_t mul = (int32_t)(uint32_t)k->mul[number];
    const int64_t add = k->add[number];
    for (; count > 0; count--, sums += k->sums_step[AXES - 1], y += k->y_step[AXES - 1]) {
        const int64_t sum = (int64_t)*sums * mul + add;
#ifndef EPILOGUE_EVEN
        if (k->shift >= 32) { /* the upper word is enough */
            *y = output(k, within_output(k, (int32_t)(sum >> 32) >> (k->shift - 32)));
            continue;
        }
#endif
        int64_t wide = sum >> k->shift;
#ifdef EPILOGUE_EVEN
        wide -= wide * ((int64_t)1 << k->shift) == sum && ((wide - EPILOGUE_EVEN) & 1);
#endif
        *y = output(k, (int32_t)(wide < k->low ? k->low : wide > k->high ? k->high : wide));
    }
}

#ifdef XPULP_INSN
#define LOAD(to) ".insn r 0x0b, 7, 0x10, " to ", %[sums], %[sums_step]\n"
#define CENTRE(of) "add " of ", " of ", %[centre]\n"
#define LIMIT(of) ".insn r 0x33, 5, 0x0a, " of ", " of ", %[limit]\n"
#define LOWER(to, of) "mul " to ", " of ", %[low]\n"
#define RIGHT(of) "sra " of ", " of ", %[bits]\n"
#define UPPER(to, of) ".insn r 0x33, 0, 0x21, " to ", " of ", %[high]\n"
#define SCALE(of) ".insn r 0x5b, 2, 0x20, " of ", %[add], %[shift]\n"
#define STORE(from) ".insn r 0x2b, 4, 0, %[y_step], %[y], " from "\n"
#ifdef CLIP_WHOLE
#define CLIP(of) ".insn r 0x33, %[clip], 0x0a, " of ", " of ", %[most]\n"
enum { CLIPS = 2 };
#else
#define CLIP(of) ".insn r 0x33, 6, 2, " of ", " of ", %[least]\n.insn r 0x33, 4, 2, " of ", " of ", %[most]\n"
enum { CLIPS = 4 };
#endif
#ifdef EPILOGUE_LOOKUP
#define TABLE(k) , [table] "r"((uintptr_t)(k)->table - (uintptr_t)(intptr_t)(k)->low)
#define FIND(of) ".insn r 0x03, 7, 0x20, " of ", %[table], " of "\n"
enum { FINDS = 2 };
#else
#define FIND(of)
#define TABLE(k)
enum { FINDS = 0 };
#endif
/* Pairs of pixels, in turns: a product is there one instruction later. */
#define PAIRS(limits, count)                                                                                          \
    __asm__ volatile(                                                                                                 \
        ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[pairs], %[length]\n" LOAD("t3") LOAD("t4") limits LOWER( \
            "t5", "t3") LOWER("t6", "t4") RIGHT("t5") RIGHT("t6") UPPER("t5", "t3") UPPER("t6", "t4") SCALE("t5")     \
            SCALE("t6") CLIP("t5") CLIP("t6") FIND("t5") FIND("t6") STORE("t5") STORE("t6") ".option pop\n"           \
        : [sums] "+r"(sums), [y] "+r"(y)                                                                              \
        : [pairs] "r"(pairs), [length] "i"(2 * (12 + CLIPS + FINDS + (count))), [sums_step] "r"(sums_step),           \
          [y_step] "r"(y_step), [low] "r"(c->low), [high] "r"(c->high), [bits] "r"(c->bits), [add] "r"(c->add),       \
          [shift] "r"(c->shift), [limit] "r"(c->limit), [centre] "r"(c->centre), [least] "r"(k->low),                 \
          [most] "r"(k->high), [clip] "i"((Y_T) - 1 < 0 ? 5 : 6) TABLE(k)                                             \
        : "t3", "t4", "t5", "t6", "memory")
#endif

/* A channel of neighbouring pixels. */
static inline void pixels(const struct pulp_requantise_sums *k, const struct channel *c, const int32_t *sums, Y_T *y,
                          int count) {
    const int y_step = k->y_step[AXES - 1];
#ifdef XPULP_INSN
    const int sums_step = 4 * k->sums_step[AXES - 1], pairs = count >> 1;
    count &= 1;
    if (!pairs) {
    } else if (c->limit == INT32_MAX) {
        PAIRS("", 0);
    } else {
        PAIRS(CENTRE("t3") CENTRE("t4") LIMIT("t3") LIMIT("t4"), 4);
    }
    if (count) *y = requantised(k, c, *sums);
#else
    for (int i = 0; i < count; i++) y[i * y_step] = requantised(k, c, sums[i * k->sums_step[AXES - 1]]);
#endif
}

void KERNEL(const struct pulp_requantise_sums *k) {
    int extent[AXES] = {k->extent[0], k->extent[1], k->extent[2]};
    /* Rows that follow each other are one. */
    for (int axis = AXES - 2; axis >= 0; axis--) {
        const int length = extent[AXES - 1];
        const int follows =
            length * k->sums_step[AXES - 1] == k->sums_step[axis] && length * k->y_step[AXES - 1] == k->y_step[axis];
        if (extent[axis] != 1 && !follows) break;
        extent[AXES - 1] *= extent[axis], extent[axis] = 1;
    }
    int share = (k->channels + k->cores - 1) / k->cores, first = k->core * share, length = extent[AXES - 1];
    const int32_t *sums = k->sums;
    Y_T *y = (Y_T *)k->y;
    if (k->channels < k->cores) { /* cores with the same channel divide the pixels */
        const int parts = k->cores / k->channels, part = k->core / k->channels, each = (length + parts - 1) / parts;
        if (part >= parts) return;
        first = k->core - part * k->channels;
        sums += part * each * k->sums_step[AXES - 1], y += part * each * k->y_step[AXES - 1];
        length = each < length - part * each ? each : length - part * each;
    }
    const int count = k->channels - first < share ? k->channels - first : share;
    /* Cores begin at channels in different banks of the memory: neighbouring pixels of one are often in the same. */
    int at = first >> 4;
    at = first + (at < count ? at : 0);
    for (int left = length > 0 ? count : 0; left > 0; left--, at = at + 1 < first + count ? at + 1 : first) {
        const int64_t factor = k->mul[at], summand = k->add[at];
        const int32_t mul = (int32_t)(uint32_t)factor, packed = (int32_t)(summand >> 32), bits = packed & 31;
        const struct channel c = {.low = (int32_t)((uint32_t)mul & (((uint32_t)1 << bits) - 1)),
                                  .high = mul >> bits,
                                  .bits = bits,
                                  .add = (int32_t)(uint32_t)summand,
                                  .shift = packed >> 5 & 31,
                                  .centre = packed >> 10,
                                  .limit = (int32_t)(factor >> 32)};
        int sums_image = at, y_image = at;
        for (int i = 0; i < extent[0]; i++, sums_image += k->sums_step[0], y_image += k->y_step[0]) {
            int sums_row = sums_image, y_row = y_image;
            for (int j = 0; j < extent[1]; j++, sums_row += k->sums_step[1], y_row += k->y_step[1]) {
                if (c.limit == WIDE)
                    wide_pixels(k, sums + sums_row, y + y_row, length, at);
                else
                    pixels(k, &c, sums + sums_row, y + y_row, length);
            }
        }
    }
}
