/* Runs one chip of a system as an MPI rank; chip K is rank K. Arguments are as in threads.c, and the seconds after
 * which a chip that waits takes its peer for lost. A chip whose peer is gone says so and ends all of them.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chip.h"
#include "system.h"

enum { POLLS = 2000 }; /* before the processor is given away between two looks */

struct slot {
    MPI_Request request;
    void *data;
    uint32_t room;
    int is_busy;
};

static struct {
    int chip;
    double patience;
    struct slot (*slots)[CHIP_QUEUE]; /* per peer, the messages on their way */
    int next[CHIPS];
    char text[CHIP_TEXT]; /* what is waited for, for the handler of signals */
} own;

static _Noreturn void end_all(int status) {
    MPI_Abort(MPI_COMM_WORLD, status);
    _Exit(status);
}

static void describe(const char *verb, const char *side, int tag, int peer) {
    snprintf(own.text, sizeof own.text, "chip %d waits to %s tag %d %s chip %d", own.chip, verb, tag, side, peer);
}

/* When another rank is gone, mpirun ends this one: what it waited for is worth knowing. */
static void on_end(int number) {
    (void)number;
    if (own.text[0]) {
        const char tail[] = ", which has ended or waits itself\n";
        if (write(2, own.text, strlen(own.text)) < 0 || write(2, tail, sizeof tail - 1) < 0) _exit(CHIP_LOST);
    }
    _exit(CHIP_LOST);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Until the request is complete. */
static void complete(MPI_Request *request, MPI_Status *status) {
    const double start = now();
    int is_done = 0;
    for (unsigned long polls = 0; !is_done; polls++) {
        MPI_Test(request, &is_done, status);
        if (is_done || polls < POLLS) continue;
        const struct timespec pause = {0, 200000};
        nanosleep(&pause, NULL);
        if (now() - start < own.patience) continue;
        fprintf(stderr, "%s, which has not been heard of for %.0f s\n", own.text, own.patience);
        fflush(stderr);
        end_all(CHIP_LOST);
    }
    own.text[0] = 0;
}

static void carry(void *context, int peer, int tag, const void *from, uint32_t bytes) {
    (void)context;
    struct slot *slot = &own.slots[peer][own.next[peer]];
    own.next[peer] = (own.next[peer] + 1) % CHIP_QUEUE;
    if (slot->is_busy) {
        describe("send", "to", tag, peer);
        complete(&slot->request, MPI_STATUS_IGNORE);
    }
    if (slot->room < bytes) {
        free(slot->data);
        slot->data = malloc(bytes);
        slot->room = bytes;
        if (!slot->data) end_all(1);
    }
    if (bytes) memcpy(slot->data, from, bytes);
    MPI_Issend(slot->data, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &slot->request);
    slot->is_busy = 1;
}

static void deliver(void *context, int peer, int tag, void *to, uint32_t bytes) {
    (void)context;
    MPI_Request request;
    MPI_Status status;
    int count = 0;
    describe("receive", "from", tag, peer);
    MPI_Irecv(to, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &request);
    complete(&request, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    if ((uint32_t)count == bytes) return;
    fprintf(stderr, "chip %d expects tag %d of %u bytes from chip %d, which sends %d bytes\n", own.chip, tag,
            (unsigned)bytes, peer, count);
    end_all(CHIP_LOST);
}

static int fail(const char *what) {
    fprintf(stderr, "chip %d: %s\n", own.chip, what);
    return 1;
}

static int run(const char *program, const char *folder) {
    char path[CHIP_PATH];
    chip_library_path(path, program, own.chip);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return fail(dlerror());
    chip_connect_function *connect;
    chip_main_function *application;
    *(void **)&connect = dlsym(library, "chip_connect");
    *(void **)&application = dlsym(library, "chip_main");
    if (!connect || !application) return fail("its library has no chip_main");
    int count;
    char **arguments = chip_arguments(folder, own.chip, &count);
    if (!arguments) return fail("the file of its arguments cannot be read: all machines need the folder");
    static const struct chip_transport transport = {NULL, carry, deliver};
    connect(own.chip, &transport);
    const int status = application(count, arguments);
    for (int peer = 0; peer < CHIPS && !status; peer++) {
        for (int i = 0; i < CHIP_QUEUE; i++) {
            struct slot *slot = &own.slots[peer][i];
            describe("finish sending", "to", -1, peer);
            if (slot->is_busy) complete(&slot->request, MPI_STATUS_IGNORE);
        }
    }
    own.text[0] = 0;
    return status;
}

int main(int argc, char **argv) {
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &own.chip);
    if (ranks != CHIPS || argc < 2) {
        if (!own.chip && ranks != CHIPS)
            fprintf(stderr, "the project has %d chips, mpirun began %d ranks\n", CHIPS, ranks);
        if (!own.chip && argc < 2) fprintf(stderr, "usage: application FOLDER [SECONDS]\n");
        MPI_Finalize();
        return 1;
    }
    own.patience = argc > 2 ? strtod(argv[2], NULL) : 600;
    own.slots = calloc(CHIPS, sizeof *own.slots);
    if (!own.slots) end_all(1);
    signal(SIGTERM, on_end);
    const int status = run(argv[0], argv[1]);
    if (status) {
        fprintf(stderr, "chip %d ended with status %d\n", own.chip, status);
        fflush(stderr);
        end_all(status);
    }
    MPI_Finalize();
    return 0;
}
