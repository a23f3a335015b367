/* y[h, w, c] = clip((sums[h, w, c] * factor[c] + summand[c]) >> shift[c]), or that by a table.
 *
 * sums are int32, [rows, rows, pixels, channels], y bytes, any strides. Two pixels of a channel take 14 instructions,
 * 16 beyond the range of Y_T, 4 more where sums are limited and 2 for a table: 7 to 11 a sum. Instructions bound it,
 * and the banks of memory that neighbouring pixels share.
 *
 * Channel after channel, whose parameters stay in registers. The factor has two parts, so that products have 32 bits:
 * sum * high + (sum * low >> bits) is sum * factor >> bits.
 *
 * Beside the macros of docs/kernels.md an instance may have CLIP_WHOLE: low and high are the limits of Y_T. */
#include "pulp_requantise_sums.h"

#include "../portable/kernel_instance.h"
#include "xpulp.h"

enum { AXES = REQUANTISE_SUMS_AXES, WIDE = -1, FREE = INT32_MAX - 1 };

struct channel {
    int32_t low, high, bits; /* both parts of the factor, and the bits of the lower one */
    int32_t add, shift, centre, limit;
};

static inline int32_t within_output(const struct pulp_requantise_sums *k, int32_t value) {
    if (CLIP_WHOLE) return (Y_T)-1 < 0 ? xp_clip(value, 127) : xp_clipu(value, 255);
    return xp_max(k->low, xp_min(k->high, value));
}

static inline Y_T output(const struct pulp_requantise_sums *k, int32_t value) {
    return HAS_TABLE ? ((const Y_T *)k->table)[value - k->low] : (Y_T)value;
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
        if (EVEN < 0 && k->shift >= 32) { /* the upper word is enough */
            *y = output(k, within_output(k, (int32_t)(sum >> 32) >> (k->shift - 32)));
            continue;
        }
        int64_t wide = sum >> k->shift;
        if (EVEN >= 0) wide -= wide * ((int64_t)1 << k->shift) == sum && ((wide - EVEN) & 1);
        *y = output(k, (int32_t)(wide < k->low ? k->low : wide > k->high ? k->high : wide));
    }
}

#define LOAD(to) ".insn r 0x0b, 7, 0x10, " to ", %[sums], %[sums_step]\n"
#define CENTRE(of) "add " of ", " of ", %[centre]\n"
#define LIMIT(of) XP_CLIP(of, of, "%[limit]")
#define RIGHT(of) "sra " of ", " of ", %[bits]\n"
#define SCALE(of) XP_ADD_SHIFT(of, "%[add]", "%[shift]")
#define STORE(from) ".insn r 0x2b, 4, 0, %[y_step], %[y], " from "\n"
#define CLIP(of)                                                                 \
    EITHER("%[whole]", ".insn r 0x33, %[clip], 0x0a, " of ", " of ", %[most]\n", \
           XP_MAX(of, of, "%[least]") XP_MIN(of, of, "%[most]"))
#define FIND(of) IF("%[looks_up]", ".insn r 0x03, 7, 0x20, " of ", %[table], " of "\n")
#define MULTIPLY(to, of) EITHER("%[is_alone]", "mul " to ", " of ", %[low]\n", XP_MAC(to, of, "%[low]"))
#define NEAR CENTRE("t3") CENTRE("t4") LIMIT("t3") LIMIT("t4")

/* Pairs of pixels, in turns. Products with the lower part of the factor: a multiplication takes two cycles, a
 * multiplication and addition one. Where the summand leaves room for it (not is_alone), they are added to what the
 * registers hold, which is nothing or the results of the pair before. is_near: sums are limited. */
FOLDED void pairs_of(const struct pulp_requantise_sums *k, const struct channel *c, const int32_t *sums, Y_T *y,
                     int pairs, int is_alone, int is_near) {
    XP_BLOCK(
        BEGIN "li t5, 0\nli t6, 0\n.insn i 0x7b, 4, x0, %[pairs], %[length]\n" LOAD("t3") LOAD("t4")
            IF("%[is_near]", NEAR) MULTIPLY("t5", "t3") MULTIPLY("t6", "t4") RIGHT("t5") RIGHT("t6")
                XP_MAC("t5", "t3", "%[high]") XP_MAC("t6", "t4", "%[high]") SCALE("t5") SCALE("t6") CLIP("t5")
                    CLIP("t6") FIND("t5") FIND("t6") STORE("t5") STORE("t6") END : [sums] "+r"(sums),
        [y] "+r"(y) : [pairs] "r"(pairs), [length] "i"(2 * (12 + (CLIP_WHOLE ? 2 : 4) + 2 * HAS_TABLE + 4 * is_near)),
        [sums_step] "r"(4 * k->sums_step[AXES - 1]), [y_step] "r"(k->y_step[AXES - 1]), [low] "r"(c->low),
        [high] "r"(c->high), [bits] "r"(c->bits), [add] "r"(c->add), [shift] "r"(c->shift), [most] "r"(k->high),
        [least] "ri"(CLIP_WHOLE ? 0 : k->low), [clip] "i"((Y_T)-1 < 0 ? 5 : 6), [whole] "i"(CLIP_WHOLE),
        [looks_up] "i"(HAS_TABLE), [is_alone] "i"(is_alone), [is_near] "i"(is_near),
        [table] "ri"(HAS_TABLE ? (uintptr_t)k->table - (uintptr_t)(intptr_t)k->low : 0),
        [limit] "ri"(is_near ? c->limit : 0), [centre] "ri"(is_near ? c->centre : 0) : "t3", "t4", "t5", "t6",
        "memory");
}

/* A channel of neighbouring pixels; is_alone: its summand leaves no room for what is added to the lower product. */
static inline void pixels(const struct pulp_requantise_sums *k, const struct channel *c, const int32_t *sums, Y_T *y,
                          int count, int is_alone) {
    const int y_step = k->y_step[AXES - 1], pairs = count >> 1;
    for (int i = 0; i < count && !XPULP_INSN; i++) y[i * y_step] = requantised(k, c, sums[i * k->sums_step[AXES - 1]]);
    if (!XPULP_INSN) return;
    if (count & 1) {
        *y = requantised(k, c, *sums);
        if (!pairs) return;
        sums += k->sums_step[AXES - 1], y += y_step;
    }
    if (c->limit == FREE) {
        if (is_alone)
            pairs_of(k, c, sums, y, pairs, 1, 0);
        else
            pairs_of(k, c, sums, y, pairs, 0, 0);
    } else {
        if (is_alone)
            pairs_of(k, c, sums, y, pairs, 1, 1);
        else
            pairs_of(k, c, sums, y, pairs, 0, 1);
    }
}

/* The parameters of a channel. */
static inline struct channel channel_of(int64_t factor, int64_t summand) {
    const int32_t lower = (int32_t)(uint32_t)factor, packed = (int32_t)(summand >> 32), bits = packed & 31;
    const int32_t upper = lower >> bits;
    return (struct channel){.low = lower - (int32_t)((uint32_t)upper << bits),
                            .high = upper,
                            .bits = bits,
                            .add = (int32_t)(uint32_t)summand,
                            .shift = packed >> 5 & 31,
                            .centre = packed >> 10,
                            .limit = (int32_t)(factor >> 32)};
}

/* The pixels that a core requantises: rows of rows, `length` in each. */
struct part {
    const int32_t *sums;
    Y_T *y;
    int rows[AXES - 1], length;
};

/* Of one channel, all of them. */
OUT_OF_LINE void channel(const struct pulp_requantise_sums *k, const struct part *part, int at) {
    struct channel c = channel_of(k->mul[at], k->add[at]);
    const int is_wide = c.limit == WIDE, is_alone = c.limit < WIDE;
    if (is_alone) c.limit = WIDE - 1 - c.limit;
    const int32_t *image = part->sums + at;
    Y_T *y_image = part->y + at;
    for (int i = part->rows[0]; i > 0; i--, image += k->sums_step[0], y_image += k->y_step[0]) {
        const int32_t *row = image;
        Y_T *y_row = y_image;
        for (int j = part->rows[1]; j > 0; j--, row += k->sums_step[1], y_row += k->y_step[1]) {
            if (is_wide)
                wide_pixels(k, row, y_row, part->length, at);
            else if (is_alone)
                pixels(k, &c, row, y_row, part->length, 1);
            else
                pixels(k, &c, row, y_row, part->length, 0);
        }
    }
}

/* Neighbouring channels. */
OUT_OF_LINE void channels(const struct pulp_requantise_sums *k, const struct part *part, int at, int end) {
    const int is_one = (part->rows[0] | part->rows[1]) == 1, count = part->length;
    const int64_t *mul = k->mul + at, *add = k->add + at;
    for (; at < end; at++) {
        /* Its address is taken nowhere, so that it stays in registers. */
        const struct channel c = channel_of(*mul++, *add++);
        if (is_one && c.limit > WIDE)
            pixels(k, &c, part->sums + at, part->y + at, count, 0);
        else
            channel(k, part, at);
    }
}

void KERNEL(const struct pulp_requantise_sums *k) {
    struct part part = {k->sums, (Y_T *)k->y, {k->extent[0], k->extent[1]}, k->extent[AXES - 1]};
    /* Rows that follow each other are one. */
    for (int axis = AXES - 2; axis >= 0; axis--) {
        const int follows = part.length * k->sums_step[AXES - 1] == k->sums_step[axis] &&
                            part.length * k->y_step[AXES - 1] == k->y_step[axis];
        if (part.rows[axis] != 1 && !follows) break;
        part.length *= part.rows[axis], part.rows[axis] = 1;
    }
    int share = (k->channels + k->cores - 1) / k->cores, first = k->core * share;
    if (k->channels < k->cores) { /* cores with the same channel divide the pixels */
        const int parts = k->cores / k->channels, number = k->core / k->channels;
        const int each = (part.length + parts - 1) / parts, left = part.length - number * each;
        if (number >= parts) return;
        first = k->core - number * k->channels;
        part.sums += number * each * k->sums_step[AXES - 1], part.y += number * each * k->y_step[AXES - 1];
        part.length = each < left ? each : left;
    }
    const int end = first + share < k->channels ? first + share : k->channels;
    if (part.length <= 0 || first >= end) return;
    /* Cores begin at channels in different banks of the memory: neighbouring pixels of one are often in the same. */
    const int ahead = first >> 4, begin = first + (ahead < end - first ? ahead : 0);
    channels(k, &part, begin, end);
    channels(k, &part, first, begin);
}
