/* Transfer engines: checks every start against the engine's limits, and lets transfers arrive as the mode says. */
#include <inttypes.h>
#include <stdlib.h>

#include "model.h"

enum host_mode host_mode = HOST_LATE;

static struct host_flight **flights; /* in the order of their starts; they stay until the wait */
static int flight_count, flight_room;

static void check_names(int engine, int ticket, const char *call) {
    if (engine < 0 || engine >= rt_machine.engines)
        host_violation("Engines are numbered as rt_machine lists them.", "%s: there is no engine %d", call, engine);
    if (host_team_core() > 0)
        host_violation("Core 0 alone starts transfers and waits for them.", "%s is called by another core of the team",
                       call);
    const struct rt_engine *e = &rt_machine.engine[engine];
    if (ticket < 0 || ticket >= e->tickets)
        host_violation("Tickets are numbered from 0, below the number that may be open at once.",
                       "%s: %s has %d tickets, this is number %d", call, e->name, e->tickets, ticket);
}

static void check_limit(const struct rt_engine *e, const char *what, uint64_t value, uint64_t limit) {
    if (value > limit)
        host_violation("Transfers keep within the limits of their engine.", "%s: %s %" PRIu64 " are more than %" PRIu64,
                       e->name, what, value, limit);
}

static void check_aligned(const struct rt_engine *e, const char *what, uint64_t value) {
    if (e->alignment && value % e->alignment)
        host_violation("Addresses, lengths and pitches are multiples of the engine's alignment.",
                       "%s: %s 0x%" PRIx64 " is not aligned to %" PRIu32 " bytes", e->name, what, value, e->alignment);
}

static void check_limits(const struct rt_engine *e, const struct rt_transfer *t) {
    if (!t->bytes || !t->rows)
        host_violation("A transfer moves at least one byte.", "%s: %" PRIu32 " rows of %" PRIu32 " bytes", e->name,
                       t->rows, t->bytes);
    check_limit(e, "bytes of a row,", t->bytes, e->max_bytes);
    check_limit(e, "rows,", t->rows, e->max_rows);
    check_limit(e, "bytes in all rows,", (uint64_t)t->bytes * t->rows, e->max_total);
    check_aligned(e, "destination", t->to);
    check_aligned(e, "source", t->from);
    check_aligned(e, "length", t->bytes);
}

/* The pitches of one side, for transfers of several rows. */
static void check_pitch(const struct rt_engine *e, int is_near, int is_destination, uint32_t pitch, uint32_t bytes) {
    const char *side = is_destination ? "pitch of the destination" : "pitch of the source";
    if (is_near && !e->near_pitch) {
        if (pitch != bytes)
            host_violation("The engine knows no pitch on its near side.",
                           "%s: rows of %" PRIu32 " bytes that are %" PRIu32 " apart in %s", e->name, bytes, pitch,
                           host_level_name(e->near));
        return;
    }
    check_limit(e, side, pitch, e->max_pitch);
    check_aligned(e, side, pitch);
    if (is_destination && pitch < bytes)
        host_violation("Rows of a destination do not overlap.",
                       "%s: rows of %" PRIu32 " bytes that are %" PRIu32 " apart", e->name, bytes, pitch);
}

static void check_side(const struct rt_engine *e, struct host_place *place, const struct rt_transfer *t,
                       int is_destination) {
    const uint32_t pitch = is_destination ? t->to_pitch : t->from_pitch;
    char what[HOST_TEXT];
    if (t->rows > 1) check_pitch(e, place->space.level == e->near, is_destination, pitch, t->bytes);
    snprintf(what, sizeof what, "%s, %s", e->name, is_destination ? "destination" : "source");
    host_check_block(place, (uint64_t)(t->rows - 1) * pitch + t->bytes, what);
    if (is_destination && !place->space.is_writable) {
        char text[HOST_TEXT];
        host_describe(place, text);
        host_violation("Constants and inputs are only read.", "%s: the destination is %s", e->name, text);
    }
}

static struct host_place find(const struct rt_engine *e, const char *side, rt_address address) {
    struct host_place place = {.block = NULL};
    if (!host_find(address, &place))
        host_violation("Transfers use arenas, constants and announced arrays.",
                       "%s: the %s 0x%" PRIxPTR " lies in no memory of the machine", e->name, side, address);
    if (place.space.level != e->near && place.space.level != e->far) {
        char text[HOST_TEXT];
        host_describe(&place, text);
        host_violation("An engine reaches the two levels it connects.", "%s connects %s and %s: the %s is %s", e->name,
                       host_level_name(e->near), host_level_name(e->far), side, text);
    }
    return place;
}

static int on_the_way(int engine) {
    int count = 0;
    for (int i = 0; i < flight_count; i++) count += flights[i]->engine == engine && flights[i]->left;
    return count;
}

/* The command queue is full: completes one transfer. */
static void make_room(int engine) {
    int index = host_mode == HOST_RANDOM ? (int)host_below((uint32_t)on_the_way(engine)) : 0;
    for (int i = 0; i < flight_count; i++) {
        if (flights[i]->engine != engine || !flights[i]->left || index--) continue;
        host_land(flights[i], flights[i]->left);
        return;
    }
}

static void keep(struct host_flight *flight) {
    if (flight_count == flight_room) {
        flight_room = 2 * flight_room + 64;
        flights = realloc(flights, sizeof(struct host_flight *) * (size_t)flight_room);
        if (!flights) abort();
    }
    flights[flight_count++] = flight;
}

static void count(const struct rt_engine *e, const struct host_flight *f, struct host_traffic *traffic) {
    const uint64_t bytes = (uint64_t)f->transfer.bytes * f->transfer.rows;
    const struct host_place *sides[] = {&f->to, &f->from};
    const uint32_t pitches[] = {f->transfer.to_pitch, f->transfer.from_pitch};
    traffic->transfers++;
    traffic->rows += f->transfer.rows;
    *(f->to.space.level == e->near ? &traffic->bytes_to_near : &traffic->bytes_to_far) += bytes;
    host_count_step_bytes(bytes);
    for (int i = 0; i < 2; i++) {
        if (sides[i]->space.kind != HOST_ARENA) continue;
        const uint32_t end = sides[i]->offset + (f->transfer.rows - 1) * pitches[i] + f->transfer.bytes;
        uint32_t *const touched = &host_counters.touched[sides[i]->space.level];
        if (end > *touched) *touched = end;
    }
}

void rt_start(int engine, int ticket, const struct rt_transfer *transfer) {
    host_turn();
    host_lock();
    check_names(engine, ticket, "rt_start");
    const struct rt_engine *e = &rt_machine.engine[engine];
    struct host_traffic *const traffic = &host_counters.engine[engine];
    check_limits(e, transfer);
    struct host_place to = find(e, "destination", transfer->to), from = find(e, "source", transfer->from);
    if (to.space.level == from.space.level)
        host_violation("An engine moves bytes from one of its levels to the other.", "%s: both sides lie in %s",
                       e->name, host_level_name(to.space.level));
    check_side(e, &to, transfer, 1);
    check_side(e, &from, transfer, 0);
    const struct host_flight sketch = {
        .transfer = *transfer, .engine = engine, .ticket = ticket, .to = to, .from = from};
    for (int i = 0; i < flight_count; i++) host_check_conflict(flights[i], &sketch);
    host_check_flight_against_jobs(&sketch);
    while (e->max_outstanding > 0 && on_the_way(engine) >= e->max_outstanding) make_room(engine);
    struct host_flight *flight = host_take_off(engine, ticket, transfer, &to, &from);
    keep(flight);
    count(e, flight, traffic);
    if (host_mode == HOST_EARLY) host_land(flight, flight->left);
    const uint32_t outstanding = (uint32_t)on_the_way(engine);
    if (outstanding > traffic->outstanding) traffic->outstanding = outstanding;
    host_unlock();
}

void rt_wait(int engine, int ticket) {
    host_turn();
    host_lock();
    check_names(engine, ticket, "rt_wait");
    host_counters.engine[engine].waits++;
    int kept = 0;
    for (int i = 0; i < flight_count; i++) {
        if (flights[i]->engine == engine && flights[i]->ticket == ticket)
            host_close(flights[i]);
        else
            flights[kept++] = flights[i];
    }
    flight_count = kept;
    host_unlock();
}

const struct host_flight *host_open_flight(int index) {
    return index < flight_count ? flights[index] : NULL;
}

/* In random mode, lets parts of outstanding transfers arrive. */
void host_progress(void) {
    if (host_mode != HOST_RANDOM) return;
    for (int i = 0; i < flight_count; i++) {
        if (flights[i]->left && !host_below(3)) host_land(flights[i], 1 + host_below(flights[i]->left));
    }
    host_progress_jobs();
}

/* Both sides of outstanding transfers must be alive in the step that begins. */
void host_check_lifetimes(void) {
    for (int i = 0; i < flight_count; i++) {
        const struct host_place *sides[] = {&flights[i]->to, &flights[i]->from};
        for (int side = 0; side < 2; side++) {
            if (host_is_alive(sides[side])) continue;
            char text[3 * HOST_TEXT];
            host_describe_flight(flights[i], text);
            host_violation("Blocks live until what was transferred to or from them was waited for.",
                           "%s died while under way is %s", sides[side]->block->name, text);
        }
    }
    host_check_job_lifetimes();
}

void host_check_all_waited(const char *when) {
    host_check_all_jobs_waited(when);
    if (!flight_count) return;
    char text[3 * HOST_TEXT];
    host_describe_flight(flights[0], text);
    host_violation("Every transfer is waited for before the inference ends.", "%s while nobody had waited for %s", when,
                   text);
}
