/* An outstanding transfer. The source is copied at the start. The destination holds garbage until the bytes arrive, and
 * neither side may be touched before the wait.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum { SHARDS = 8 }; /* pieces of a transfer of a single row */

struct range {
    uint32_t row, first, bytes;
};

static struct range range_of(const struct host_flight *f, uint32_t piece) {
    const uint64_t bytes = f->transfer.bytes;
    if (f->transfer.rows > 1) return (struct range){piece, 0, f->transfer.bytes};
    const uint32_t first = (uint32_t)(bytes * piece / f->pieces), end = (uint32_t)(bytes * (piece + 1) / f->pieces);
    return (struct range){0, first, end - first};
}

static int64_t to_offset(const struct host_flight *f, struct range r) {
    return f->to.offset + (int64_t)r.row * f->transfer.to_pitch + r.first;
}

static int64_t from_offset(const struct host_flight *f, struct range r) {
    return f->from.offset + (int64_t)r.row * f->transfer.from_pitch + r.first;
}

static unsigned char *data_of(const struct host_flight *f, struct range r) {
    return f->data + (size_t)r.row * f->transfer.bytes + r.first;
}

void host_describe_flight(const struct host_flight *f, char text[3 * HOST_TEXT]) {
    char to[HOST_TEXT], from[HOST_TEXT];
    host_describe(&f->to, to);
    host_describe(&f->from, from);
    snprintf(text, 3 * HOST_TEXT, "%s, ticket %d, %" PRIu32 " x %" PRIu32 " bytes from %s to %s",
             rt_machine.engine[f->engine].name, f->ticket, f->transfer.rows, f->transfer.bytes, from, to);
}

static void hide_destination(const struct host_flight *f, int is_hidden) {
    for (uint32_t row = 0; row < f->transfer.rows; row++) {
        const int64_t offset = to_offset(f, (struct range){row, 0, 0});
        if (is_hidden)
            host_hide(&f->to.space, offset, f->transfer.bytes);
        else
            host_show(&f->to.space, offset, f->transfer.bytes);
    }
}

static void report_accesses(const struct host_flight *f) {
    for (uint32_t row = 0; row < f->transfer.rows; row++) {
        const struct host_space *from = &f->from.space, *to = &f->to.space;
        const struct range r = {row, 0, 0};
        if (!rt_machine.level[from->level].is_far)
            host_report_access((const void *)(from->begin + (uintptr_t)from_offset(f, r)), f->transfer.bytes, 0);
        if (!rt_machine.level[to->level].is_far)
            host_report_access((const void *)(to->begin + (uintptr_t)to_offset(f, r)), f->transfer.bytes, 1);
    }
}

/* Reports a transfer whose whole source was never written. Fewer than 16 bytes could equal garbage by coincidence. */
static void check_source(const struct host_flight *f) {
    const uint64_t total = (uint64_t)f->transfer.bytes * f->transfer.rows;
    if (total < 16) return;
    for (uint32_t row = 0; row < f->transfer.rows; row++) {
        const int64_t offset = from_offset(f, (struct range){row, 0, 0});
        if (host_intact(&f->from.space, offset, f->transfer.bytes) != f->transfer.bytes) return;
    }
    char text[3 * HOST_TEXT];
    host_describe_flight(f, text);
    host_violation("What is transferred was written in this inference.", "%s: nobody has written the source", text);
}

struct host_flight *host_take_off(int engine, int ticket, const struct rt_transfer *transfer,
                                  const struct host_place *to, const struct host_place *from) {
    struct host_flight *f = malloc(sizeof *f);
    const uint32_t pieces = transfer->rows > 1 ? transfer->rows : transfer->bytes < SHARDS ? transfer->bytes : SHARDS;
    if (!f) abort();
    *f = (struct host_flight){*transfer, engine, ticket, *to, *from, NULL, NULL, pieces, pieces};
    f->data = malloc((size_t)transfer->bytes * transfer->rows);
    f->landed = calloc(pieces, 1);
    if (!f->data || !f->landed) abort();
    check_source(f);
    report_accesses(f);
    for (uint32_t row = 0; row < transfer->rows; row++) {
        const struct range r = {row, 0, transfer->bytes};
        memcpy(data_of(f, r), from->space.memory + from_offset(f, r), transfer->bytes);
    }
    for (uint32_t row = 0; row < transfer->rows; row++)
        host_poison(&to->space, to_offset(f, (struct range){row, 0, 0}), transfer->bytes);
    hide_destination(f, 1);
    return f;
}

static _Noreturn void complain(const struct host_flight *f, const char *rule, const char *what, uint32_t row,
                               uint64_t byte) {
    char text[3 * HOST_TEXT];
    host_describe_flight(f, text);
    host_violation(rule, "%s: byte %" PRIu64 " of row %" PRIu32 " of %s", text, byte, row, what);
}

static uint32_t difference(const unsigned char *a, const unsigned char *b, uint32_t bytes) {
    uint32_t at = 0;
    while (at < bytes && a[at] == b[at]) at++;
    return at;
}

static void check_source_kept(const struct host_flight *f, struct range r) {
    const unsigned char *source = f->from.space.memory + from_offset(f, r);
    if (!memcmp(source, data_of(f, r), r.bytes)) return;
    complain(f, "From start to wait nobody writes the source.", "the source was overwritten before the wait", r.row,
             r.first + difference(source, data_of(f, r), r.bytes));
}

static void land_piece(struct host_flight *f, uint32_t piece) {
    const struct range r = range_of(f, piece);
    host_show_writes();
    const uint64_t intact = host_intact(&f->to.space, to_offset(f, r), r.bytes);
    if (intact != r.bytes)
        complain(f, "From start to wait nobody touches the destination.", "the destination was written before the wait",
                 r.row, r.first + intact);
    check_source_kept(f, r);
    memcpy(f->to.space.memory + to_offset(f, r), data_of(f, r), r.bytes);
    host_note_write(&f->to.space, to_offset(f, r), r.bytes);
    f->landed[piece] = 1;
    f->left--;
}

/* Lets `pieces` further pieces arrive, chosen by the seed; all remaining ones if there are no more than that. */
void host_land(struct host_flight *f, uint32_t pieces) {
    if (pieces >= f->left) {
        for (uint32_t piece = 0; piece < f->pieces; piece++) {
            if (!f->landed[piece]) land_piece(f, piece);
        }
        return;
    }
    for (; pieces; pieces--) {
        uint32_t piece = host_below(f->pieces);
        while (f->landed[piece]) piece = (piece + 1) % f->pieces;
        land_piece(f, piece);
    }
}

/* Ends the wait: everything has arrived, and both sides must be as the transfer left them. */
void host_close(struct host_flight *f) {
    host_land(f, f->left);
    for (uint32_t row = 0; row < f->transfer.rows; row++) {
        const struct range r = {row, 0, f->transfer.bytes};
        const unsigned char *to = f->to.space.memory + to_offset(f, r);
        check_source_kept(f, r);
        if (memcmp(to, data_of(f, r), r.bytes))
            complain(f, "From start to wait nobody touches the destination.",
                     "the destination was written before the wait", row, difference(to, data_of(f, r), r.bytes));
    }
    hide_destination(f, 0);
    report_accesses(f);
    free(f->data);
    free(f->landed);
    free(f);
}

struct rows {
    rt_address begin;
    uint64_t bytes, rows, pitch;
};

static struct rows to_rows(const struct host_flight *f) {
    return (struct rows){f->transfer.to, f->transfer.bytes, f->transfer.rows, f->transfer.to_pitch};
}

static struct rows from_rows(const struct host_flight *f) {
    return (struct rows){f->transfer.from, f->transfer.bytes, f->transfer.rows, f->transfer.from_pitch};
}

/* Whether two sets of rows share a byte. */
static int share(struct rows a, struct rows b) {
    if (a.rows > b.rows) return share(b, a);
    const rt_address a_end = a.begin + (a.rows - 1) * a.pitch + a.bytes,
                     b_end = b.begin + (b.rows - 1) * b.pitch + b.bytes;
    if (a_end <= b.begin || b_end <= a.begin) return 0;
    for (uint64_t row = 0; row < a.rows; row++) {
        const rt_address first = a.begin + row * a.pitch, end = first + a.bytes;
        /* Only the first row of b that ends after `first` can overlap. */
        uint64_t k = first >= b.begin + b.bytes && b.pitch ? (first - b.begin - b.bytes) / b.pitch + 1 : 0;
        if (k < b.rows && b.begin + k * b.pitch < end && b.begin + k * b.pitch + b.bytes > first) return 1;
    }
    return 0;
}

/* Until the wait, only the transfer may use its destination, and its source may only be read. */
void host_check_conflict(const struct host_flight *old, const struct host_flight *fresh) {
    const char *what = share(to_rows(old), to_rows(fresh))     ? "writes the destination"
                       : share(to_rows(old), from_rows(fresh)) ? "reads the destination"
                       : share(from_rows(old), to_rows(fresh)) ? "writes the source"
                                                               : NULL;
    if (!what) return;
    char first[3 * HOST_TEXT], second[3 * HOST_TEXT];
    host_describe_flight(old, first);
    host_describe_flight(fresh, second);
    host_violation("Transfers that are under way share no byte, unless both only read it.",
                   "%s, %s of a transfer nobody has waited for: %s", second, what, first);
}

/* Whether an access to contiguous bytes must not happen before the wait. */
int host_is_under_way(const struct host_flight *f, rt_address begin, uint32_t bytes, int is_written) {
    const struct rows own = {begin, bytes, 1, bytes};
    return share(to_rows(f), own) || (is_written && share(from_rows(f), own));
}
