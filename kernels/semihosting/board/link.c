/* Runs network NETWORK of the project as a host asks for it over a serial line. A message is
 *
 *     0xD7, kind, number, bytes (2), content, CRC-32 (4) of all but the first byte; numbers are little-endian.
 *
 * The host sends a request and waits; the answer has the same number, and the kind with its highest bit set. A message
 * whose CRC is wrong is dropped, so that the host sends its request again after a while: the last answer is kept, and a
 * request that comes again is answered with it, not done again. deeploy/execution/runners/link.py is the other side. */
#include <string.h>

#include "board.h"
#include "program.h"

#ifndef NETWORK
#define NETWORK 0
#endif
#ifndef LAYERS
#define LAYERS 1
#endif
#ifndef PROGRAM_ID
#define PROGRAM_ID 0
#endif

enum { BEGIN = 0xD7, PROTOCOL = 1, HEAD = 5, MOST = 512, CHECK = 4 };
enum kind { HELLO = 1, WRITE = 2, RUN = 3, READ = 4, CYCLES = 5, SNAPSHOT = 6, ANSWER = 0x80, FAILURE = 0xFF };
enum { ANEW = 1, SNAPSHOTS = 2 }; /* of RUN */

struct message {
    uint8_t begin, kind, number, bytes[2], content[MOST + CHECK];
};

static struct message request, answer;
static uint32_t answer_bytes; /* of content; `answer` is none where `has_answer` is not set */
static int has_answer;
static struct program program;
static uint64_t cycles[LAYERS], begun[LAYERS];
static int snapshots; /* whether layers send what memory holds */
static uint32_t sent; /* bytes of snapshots */

static uint32_t checksum(const uint8_t *bytes, uint32_t count) {
    uint32_t crc = ~0u;
    while (count--) {
        crc ^= *bytes++;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1));
    }
    return ~crc;
}

static uint32_t number_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static void put_number(uint8_t *bytes, uint32_t number) {
    for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(number >> 8 * i);
}

static void put_long(uint8_t *bytes, uint64_t number) {
    put_number(bytes, (uint32_t)number);
    put_number(bytes + 4, (uint32_t)(number >> 32));
}

static void send(struct message *message, uint32_t bytes) {
    message->bytes[0] = (uint8_t)bytes;
    message->bytes[1] = (uint8_t)(bytes >> 8);
    put_number(message->content + bytes, checksum(&message->kind, HEAD - 1 + bytes));
    const uint8_t *const out = &message->begin;
    for (uint32_t i = 0; i < HEAD + bytes + CHECK; i++) board_put(out[i]);
}

/* The next request whose CRC is right; returns the bytes of its content. */
static uint32_t receive(void) {
    for (;;) {
        while (board_get() != BEGIN) continue;
        uint8_t *const in = &request.kind;
        for (int i = 0; i < HEAD - 1; i++) in[i] = (uint8_t)board_get();
        const uint32_t bytes = (uint32_t)request.bytes[0] | (uint32_t)request.bytes[1] << 8;
        if (bytes > MOST) continue;
        for (uint32_t i = 0; i < bytes + CHECK; i++) request.content[i] = (uint8_t)board_get();
        if (number_at(request.content + bytes) == checksum(in, HEAD - 1 + bytes)) return bytes;
    }
}

static void reply(int kind, uint32_t bytes) {
    answer.begin = BEGIN;
    answer.kind = (uint8_t)kind;
    answer.number = request.number;
    answer_bytes = bytes;
    has_answer = 1;
    send(&answer, bytes);
}

_Noreturn void program_fail(const char *what) {
    const uint32_t bytes = (uint32_t)strlen(what);
    for (;;) { /* whatever is asked, and what was asked when it happened */
        if (request.kind) {
            memcpy(answer.content, what, bytes);
            reply(FAILURE, bytes);
        }
        receive();
    }
}

/* Part of the arrays of tensors, which are numbered through as if they lay behind one another; returns whether all of
 * it is there. */
static int copy(void *const *arrays, const struct deeploy_tensor *tensors, int count, uint32_t from, uint8_t *bytes,
                uint32_t length, int in) {
    for (int i = 0; i < count && length; i++) {
        const uint32_t size = (uint32_t)tensors[i].bytes;
        if (from >= size) {
            from -= size;
            continue;
        }
        const uint32_t part = length < size - from ? length : size - from;
        uint8_t *const place = (uint8_t *)arrays[i] + from;
        memcpy(in ? place : bytes, in ? bytes : place, part);
        bytes += part, length -= part, from = 0;
    }
    return !length;
}

static void send_snapshot(const uint8_t *bytes, uint32_t count) {
    static struct message part = {.begin = BEGIN, .kind = ANSWER | SNAPSHOT};
    part.number = request.number;
    for (uint32_t done = 0; done < count;) {
        const uint32_t length = count - done < MOST - 4 ? count - done : MOST - 4;
        put_number(part.content, sent);
        memcpy(part.content + 4, bytes + done, length);
        send(&part, length + 4);
        done += length, sent += length;
    }
}

void deeploy_profile(const char *layer, int index, int end) {
    (void)layer;
    if (index >= LAYERS) program_fail("a layer has a number that no layer should have");
    if (!end) {
        begun[index] = board_clock();
        return;
    }
    cycles[index] += board_clock() - begun[index];
    if (!snapshots) return;
    const struct deeploy_network *const net = program.net;
    send_snapshot(program.arena, (uint32_t)net->arena_bytes);
    for (int i = 0; i < net->output_count; i++) send_snapshot(program.outputs[i], (uint32_t)net->outputs[i].bytes);
}

static void run(int how) {
    const struct deeploy_network *const net = program.net;
    memset(cycles, 0, sizeof cycles);
    snapshots = how & SNAPSHOTS;
    sent = 0;
    if (how & ANEW && net->seek) net->seek(0);
    const uint64_t begin = board_clock();
    if (net->run((const void *const *)program.inputs, program.outputs) != DEEPLOY_OK) program_fail("run failed");
    put_long(answer.content, board_clock() - begin);
    reply(ANSWER | RUN, 8);
}

static void serve(uint32_t bytes) {
    const struct deeploy_network *const net = program.net;
    const uint32_t from = number_at(request.content), length = number_at(request.content + 4);
    switch (request.kind) {
        case HELLO: {
            const uint32_t facts[] = {PROTOCOL,
                                      PROGRAM_ID,
                                      board_hertz,
                                      program_bytes(net->inputs, net->input_count),
                                      program_bytes(net->outputs, net->output_count),
                                      (uint32_t)net->arena_bytes,
                                      LAYERS};
            for (uint32_t i = 0; i < sizeof facts / sizeof *facts; i++) put_number(answer.content + 4 * i, facts[i]);
            reply(ANSWER | HELLO, sizeof facts);
            return;
        }
        case WRITE:
            if (bytes < 4 ||
                !copy(program.inputs, net->inputs, net->input_count, from, request.content + 4, bytes - 4, 1))
                program_fail("more inputs than the network has");
            reply(ANSWER | WRITE, 0);
            return;
        case RUN:
            run(bytes ? request.content[0] : ANEW);
            return;
        case READ:
            if (bytes < 8 || length > MOST ||
                !copy(program.outputs, net->outputs, net->output_count, from, answer.content, length, 0))
                program_fail("more outputs than the network has");
            reply(ANSWER | READ, length);
            return;
        case CYCLES:
            if (bytes < 4 || from >= LAYERS) program_fail("more layers than the network has");
            put_long(answer.content, cycles[from]);
            reply(ANSWER | CYCLES, 8);
            return;
        default:
            program_fail("a request of an unknown kind");
    }
}

int main(void) {
    board_begin();
    board_start_clock();
    program = program_begin(deeploy_networks[NETWORK]);
    for (;;) {
        const uint32_t bytes = receive();
        if (has_answer && request.kind != HELLO && request.number == answer.number)
            send(&answer, answer_bytes);
        else
            serve(bytes);
    }
}
