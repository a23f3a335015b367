/* Messages of a chip on the host machine model: what is sent must be alive, written and at rest, what is received
 * alive. */
#include <inttypes.h>

#include "chip.h"
#include "deeploy_link.h"
#include "../host/model.h"

static const struct chip_transport *carrier;

void chip_connect(int chip, const struct chip_transport *transport) {
    host_chip = chip;
    carrier = transport;
}

/* The message's array, which generated code could read or write itself: an arena or an announced array of a near level.
 */
static void check_array(const char *call, const void *array, uint32_t bytes, int is_written) {
    struct host_place place = {.block = NULL};
    char text[HOST_TEXT];
    if (!host_find((rt_address)array, &place) || rt_machine.level[place.space.level].is_far)
        host_violation("Links reach arenas and announced arrays of near levels.", "%s: the array lies in none", call);
    host_check_block(&place, bytes, call);
    host_describe(&place, text);
    if (is_written && !place.space.is_writable)
        host_violation("Constants and inputs are only read.", "%s: the destination is %s", call, text);
    const struct host_flight *flight;
    for (int i = 0; (flight = host_open_flight(i)); i++) {
        if (!host_is_under_way(flight, (rt_address)array, bytes, is_written)) continue;
        char other[3 * HOST_TEXT];
        host_describe_flight(flight, other);
        host_violation("What a transfer moves is left alone until it was waited for.", "%s: %s, of %s", call, text,
                       other);
    }
    if (!is_written && bytes >= 16 && host_intact(&place.space, place.offset, bytes) == bytes)
        host_violation("What is sent was written in this inference.", "%s: nobody has written %s", call, text);
}

static void name(char text[HOST_TEXT], const char *call, int peer, int tag, uint32_t bytes) {
    snprintf(text, HOST_TEXT, "%s chip %d, tag %d, %" PRIu32 " bytes", call, peer, tag, bytes);
}

void rt_send(int peer, int tag, const void *from, uint32_t bytes) {
    char text[HOST_TEXT];
    name(text, "rt_send to", peer, tag, bytes);
    host_turn();
    if (host_team_core() > 0) host_violation("Core 0 alone sends and receives.", "%s", text);
    check_array(text, from, bytes, 0);
    host_counters.link.sent += bytes;
    host_counters.link.sends++;
    host_report_access(from, bytes, 0);
    carrier->send(carrier->context, peer, tag, from, bytes);
}

void rt_recv(int peer, int tag, void *to, uint32_t bytes) {
    char text[HOST_TEXT];
    name(text, "rt_recv from", peer, tag, bytes);
    host_turn();
    if (host_team_core() > 0) host_violation("Core 0 alone sends and receives.", "%s", text);
    check_array(text, to, bytes, 1);
    host_counters.link.received += bytes;
    host_counters.link.receives++;
    host_report_access(to, bytes, 1);
    carrier->recv(carrier->context, peer, tag, to, bytes);
}
