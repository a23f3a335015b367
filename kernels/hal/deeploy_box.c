/* Splits boxes into transfers within an engine's limits: adjacent runs are merged, runs that are too long are split. */
#include "deeploy_box.h"

#ifdef __GNUC__
#define SELDOM __attribute__((noinline))
#define REPLACEABLE __attribute__((weak)) /* a runtime may define a faster one */
#else
#define SELDOM
#define REPLACEABLE
#endif

enum direction { FETCH, STORE };

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static inline void start(int engine, int ticket, enum direction direction, rt_address near, rt_address far,
                         uint32_t bytes, uint32_t rows, uint32_t near_pitch, uint32_t far_pitch) {
    const struct rt_transfer t = direction == FETCH
                                     ? (struct rt_transfer){near, far, bytes, rows, near_pitch, far_pitch}
                                     : (struct rt_transfer){far, near, bytes, rows, far_pitch, near_pitch};
    rt_start(engine, ticket, &t);
}

/* Moves `rows` runs of `bytes`, `pitch` apart on the far side, in several transfers. */
static SELDOM void split_rows(int engine, int ticket, enum direction direction, rt_address near, rt_address far,
                              uint32_t bytes, uint32_t rows, uint32_t pitch) {
    const struct rt_engine *e = &rt_machine.engine[engine];
    const uint32_t longest = smaller(e->max_bytes, e->max_total);
    if (rows > 1 && bytes <= longest && e->max_rows > 1 && pitch <= e->max_pitch) {
        const uint32_t most = smaller(e->max_rows, e->max_total / bytes);
        for (uint32_t row = 0, n; row < rows; row += n) {
            n = smaller(most, rows - row);
            start(engine, ticket, direction, near + (rt_address)row * bytes, far + (rt_address)row * pitch, bytes, n,
                  bytes, pitch);
        }
        return;
    }
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t done = 0, n; done < bytes; done += n) {
            n = smaller(longest, bytes - done);
            start(engine, ticket, direction, near + (rt_address)row * bytes + done,
                  far + (rt_address)row * pitch + done, n, 1, n, n);
        }
    }
}

/* The same for the common case of a single transfer. The rare case is a separate function: fewer instruction fetches.
 */
static inline void move_rows(int engine, int ticket, enum direction direction, rt_address near, rt_address far,
                             uint32_t bytes, uint32_t rows, uint32_t pitch) {
    const struct rt_engine *e = &rt_machine.engine[engine];
    if (bytes <= e->max_bytes && (uint64_t)rows * bytes <= e->max_total &&
        (rows == 1 || (rows <= e->max_rows && pitch <= e->max_pitch)))
        start(engine, ticket, direction, near, far, bytes, rows, bytes, rows == 1 ? bytes : pitch);
    else
        split_rows(engine, ticket, direction, near, far, bytes, rows, pitch);
}

static void move(int engine, int ticket, enum direction direction, const struct rt_box *box) {
    uint32_t bytes = box->bytes;
    int axes = box->axes;
    for (int axis = 0; axis < axes; axis++) {
        if (!box->count[axis]) return;
    }
    if (!bytes) return;
    while (axes && (box->count[axes - 1] == 1 || box->pitch[axes - 1] == bytes)) bytes *= box->count[--axes];
    const uint32_t rows = axes ? box->count[axes - 1] : 1, pitch = axes ? box->pitch[axes - 1] : bytes;
    uint32_t at[BOX_AXES] = {0};
    rt_address near = box->near, far = box->far;
    for (;;) {
        move_rows(engine, ticket, direction, near, far, bytes, rows, pitch);
        near += (rt_address)bytes * rows;
        int axis = axes - 2;
        for (; axis >= 0; axis--) {
            far += box->pitch[axis];
            if (++at[axis] < box->count[axis]) break;
            far -= (rt_address)box->pitch[axis] * box->count[axis];
            at[axis] = 0;
        }
        if (axis < 0) return;
    }
}

void rt_move_rows(int engine, int ticket, int is_store, rt_address near, rt_address far, uint32_t bytes, uint32_t rows,
                  uint32_t pitch) {
    if (!bytes || !rows) return;
    const enum direction direction = is_store ? STORE : FETCH;
    if (pitch == bytes)
        move_rows(engine, ticket, direction, near, far, bytes * rows, 1, bytes * rows);
    else
        move_rows(engine, ticket, direction, near, far, bytes, rows, pitch);
}

REPLACEABLE void rt_fetch_run(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes) {
    rt_move_rows(engine, ticket, 0, near, far, bytes, 1, bytes);
}

REPLACEABLE void rt_store_run(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes) {
    rt_move_rows(engine, ticket, 1, near, far, bytes, 1, bytes);
}

REPLACEABLE void rt_fetch_rows(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes, uint32_t rows,
                               uint32_t pitch) {
    rt_move_rows(engine, ticket, 0, near, far, bytes, rows, pitch);
}

REPLACEABLE void rt_store_rows(int engine, int ticket, rt_address near, rt_address far, uint32_t bytes, uint32_t rows,
                               uint32_t pitch) {
    rt_move_rows(engine, ticket, 1, near, far, bytes, rows, pitch);
}

void rt_fetch(int engine, int ticket, const struct rt_box *box) {
    move(engine, ticket, FETCH, box);
}

void rt_store(int engine, int ticket, const struct rt_box *box) {
    move(engine, ticket, STORE, box);
}
