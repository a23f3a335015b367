/* y = x, between any two layouts of elements of 1, 2 or 4 bytes.
 *
 * x and y have any strides along six axes. Dense runs take 4 instructions for eight bytes, pieces of a word 4 for two,
 * planes of bytes that are turned 18 for sixteen. Loads and stores bound it.
 */
#include "../portable/copy.h"

#include "pulp_rows.h"
#include "xpulp.h"

enum { SIZE = sizeof(X_T), SHORT = 32 /* bytes of runs that are moved piece by piece, the same piece of all runs */ };

/* `count` pieces of 1, 2 or 4 bytes, any distance apart. */
#define LOAD(to) ".insn r 0x0b, 7, %[load], " to ", %[x], %[x_step]\n"
#define STORE(from) ".insn r 0x2b, %[store], 0, %[y_step], %[y], " from "\n"
FOLDED void strided(const uint8_t *x, int x_step, uint8_t *y, int y_step, int count, int bytes) {
    const int load = bytes == 1 ? 0x20 : bytes == 2 ? 0x28 : 0x10, store = bytes == 1 ? 4 : bytes == 2 ? 5 : 6;
    if (XPULP_INSN && (count & 1)) {
        XP_BLOCK(LOAD("t0") STORE("t0") : [x] "+r"(x), [y] "+r"(y) : [x_step] "r"(x_step), [y_step] "r"(y_step),
                 [load] "i"(load), [store] "i"(store) : "t0", "memory");
    }
    if (XPULP_INSN && count > 1) {
        XP_BLOCK(BEGIN LOOP("%[n]", 4) LOAD("t0") LOAD("t1") STORE("t0") STORE("t1") END : [x] "+r"(x),
                 [y] "+r"(y) : [n] "r"(count >> 1), [x_step] "r"(x_step), [y_step] "r"(y_step), [load] "i"(load),
                 [store] "i"(store) : "t0", "t1", "memory");
    }
    for (int i = 0; i < count && !XPULP_INSN; i++) memcpy(y + i * y_step, x + i * x_step, (size_t)bytes);
}

OUT_OF_LINE void strided_1(const uint8_t *x, int x_step, uint8_t *y, int y_step, int count) {
    strided(x, x_step, y, y_step, count, 1);
}

OUT_OF_LINE void strided_2(const uint8_t *x, int x_step, uint8_t *y, int y_step, int count) {
    strided(x, x_step, y, y_step, count, 2);
}

OUT_OF_LINE void strided_4(const uint8_t *x, int x_step, uint8_t *y, int y_step, int count) {
    strided(x, x_step, y, y_step, count, 4);
}

/* One axis of what is moved: steps in bytes. */
struct axis {
    int count, x_step, y_step;
};

/* Pieces that are no larger than a word along the axis with more of them, one piece after the other. */
OUT_OF_LINE void short_runs(const uint8_t *x, uint8_t *y, const struct axis *a, int bytes) {
    for (; bytes >= 4; bytes -= 4, x += 4, y += 4) strided_4(x, a->x_step, y, a->y_step, a->count);
    if (bytes & 2) {
        strided_2(x, a->x_step, y, a->y_step, a->count);
        x += 2, y += 2;
    }
    if (bytes & 1) strided_1(x, a->x_step, y, a->y_step, a->count);
}

OUT_OF_LINE void long_runs(const uint8_t *x, uint8_t *y, const struct axis *a, int bytes) {
    for (int i = 0; i < a->count; i++) xp_copy(y + i * a->y_step, x + i * a->x_step, bytes);
}

#define GET(to, step) ".insn r 0x0b, 7, 0x10, " to ", %[x], %[" step "]\n"
#define PUT(from, step) ".insn r 0x2b, 6, 0, %[" step "], %[y], " from "\n"

/* `count` blocks of four by four bytes become their transposes; the next one is x_next and y_next further. */
static inline void blocks(const uint8_t *x, int x_step, int x_next, uint8_t *y, int y_step, int y_next, int count) {
    const uint32_t lower = 0x05010400, upper = 0x07030602, ends = 0x07060302;
    XP_BLOCK(
        BEGIN LOOP("%[n]", 18) GET("t0", "x_step") GET("t1", "x_step") GET("t2", "x_step")
            GET("t3", "x_back") "mv t4, t0\n" XP_SHUFFLE("t4", "t1", "lower")
                XP_SHUFFLE("t0", "t1", "upper") "mv t5, t2\n" XP_SHUFFLE("t5", "t3", "lower")
                    XP_SHUFFLE("t2", "t3", "upper") XP_PACK("t1", "t5", "t4") XP_SHUFFLE("t4", "t5", "ends")
                        XP_PACK("t3", "t2", "t0") XP_SHUFFLE("t0", "t2", "ends") PUT("t1", "y_step") PUT("t4", "y_step")
                            PUT("t3", "y_step") PUT("t0", "y_back") END : [x] "+r"(x),
        [y] "+r"(y) : [n] "r"(count), [x_step] "r"(x_step), [x_back] "r"(x_next - 3 * x_step), [y_step] "r"(y_step),
        [y_back] "r"(y_next - 3 * y_step), [lower] "r"(lower), [upper] "r"(upper), [ends] "r"(ends) : "t0", "t1", "t2",
        "t3", "t4", "t5", "memory");
    for (int i = 0; i < count && !XPULP_INSN; i++) {
        const uint8_t *const from = x + i * x_next;
        uint8_t *const to = y + i * y_next;
        const uint32_t r0 = xp_load(from), r1 = xp_load(from + x_step);
        const uint32_t r2 = xp_load(from + 2 * x_step), r3 = xp_load(from + 3 * x_step);
        const uint32_t t0 = xp_shuffle2(r0, r1, lower), t1 = xp_shuffle2(r0, r1, upper);
        const uint32_t t2 = xp_shuffle2(r2, r3, lower), t3 = xp_shuffle2(r2, r3, upper);
        xp_store(to, xp_pack(t2, t0)), xp_store(to + y_step, xp_shuffle2(t0, t2, ends));
        xp_store(to + 2 * y_step, xp_pack(t3, t1)), xp_store(to + 3 * y_step, xp_shuffle2(t1, t3, ends));
    }
}

/* A matrix of bytes becomes its transpose: `width` bytes follow each other in x, `height` in y. What blocks leave over
 * is moved byte by byte. */
OUT_OF_LINE void turn(const uint8_t *x, int x_step, uint8_t *y, int y_step, int width, int height) {
    const int whole_width = width & ~3, whole_height = height & ~3;
    if (width > height) {
        for (int i = 0; i < whole_height; i += 4)
            blocks(x + i * x_step, x_step, 4, y + i, y_step, 4 * y_step, width >> 2);
    } else {
        for (int i = 0; i < whole_width; i += 4)
            blocks(x + i, x_step, 4 * x_step, y + i * y_step, y_step, 4, height >> 2);
    }
    for (int i = whole_width; i < width; i++) strided_1(x + i, x_step, y + i * y_step, 1, whole_height);
    for (int i = whole_height; i < height; i++) strided_1(x + i * x_step, 1, y + i, y_step, width);
}

/* Whether a plane of bytes along these axes is turned in blocks of four by four. */
static inline int is_turned(const struct axis *outer, const struct axis *inner) {
    return SIZE == 1 && outer->x_step == 1 && inner->y_step == 1 && outer->count > 3 && inner->count > 3;
}

/* Elements along two axes. */
OUT_OF_LINE void plane(const uint8_t *x, uint8_t *y, const struct axis *outer, const struct axis *inner) {
    if (inner->x_step == SIZE && inner->y_step == SIZE) {
        const int bytes = inner->count * SIZE;
        (bytes > SHORT || outer->count < 4 ? long_runs : short_runs)(x, y, outer, bytes);
        return;
    }
    if (is_turned(outer, inner)) {
        turn(x, inner->x_step, y, outer->y_step, outer->count, inner->count);
        return;
    }
    const struct axis *const longer = outer->count > inner->count ? outer : inner, *const other =
                                                                                       longer == outer ? inner : outer;
    for (int i = 0; i < other->count; i++) short_runs(x + i * other->x_step, y + i * other->y_step, longer, SIZE);
}

static inline struct axis axis_of(const struct copy *k, int axis) {
    return (struct axis){k->extent[axis], k->x_step[axis] * SIZE, k->y_step[axis] * SIZE};
}

/* More than two axes: the last one and one that can be turned with it, else the longest, are moved at once. */
OUT_OF_LINE void planes(const struct copy *k) {
    const struct axis inner = axis_of(k, LAST);
    int is_settled = 0;
    int extent[LAST], index[LAST], beside = LAST - 1, at = LAST - 1, x_at = 0, y_at = 0;
    XP_UNKNOWN(at);
    for (; at >= 0; at--) {
        extent[at] = k->extent[at], index[at] = 0;
        const struct axis one = axis_of(k, at);
        const int turns = is_turned(&one, &inner);
        if (turns || (!is_settled && extent[at] > extent[beside])) beside = at;
        is_settled |= turns;
    }
    const struct axis outer = axis_of(k, beside);
    extent[beside] = 1;
    do {
        plane((const uint8_t *)k->x + x_at, (uint8_t *)k->y + y_at, &outer, &inner);
        for (at = LAST - 1; at >= 0; at--) {
            const struct axis a = axis_of(k, at);
            x_at += a.x_step, y_at += a.y_step;
            if (++index[at] < extent[at]) break;
            x_at -= a.x_step * extent[at], y_at -= a.y_step * extent[at];
            index[at] = 0;
        }
    } while (at >= 0);
}

void KERNEL(const struct copy *k) {
    if ((k->extent[0] | k->extent[1] | k->extent[2] | k->extent[3]) == 1) {
        const struct axis outer = axis_of(k, LAST - 1), inner = axis_of(k, LAST);
        plane((const uint8_t *)k->x, (uint8_t *)k->y, &outer, &inner);
    } else {
        planes(k);
    }
}
