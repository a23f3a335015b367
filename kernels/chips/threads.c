/* Runs all chips of a system in this process, a thread each.
 *
 * application FOLDER: FOLDER/K.args holds the arguments of chip K's application, one a line. The libraries of the chips
 * are chips/K.so beside this program. Between two chips at most CHIP_QUEUE messages wait; a chip that waits for another
 * one that has ended, and chips that all wait for each other, end the program with the status CHIP_LOST and both names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chip.h"
#include "system.h"

struct message {
    int tag;
    uint32_t bytes;
    void *data;
    struct message *next;
};

struct line {
    struct message *first;
    int count;
};

/* What one chip waits for; its own lines are those that lead to it. */
struct place {
    pthread_t thread;
    struct chip_transport transport;
    chip_main_function *run;
    int argc, status;
    char **argv;
    pthread_cond_t moved;
    int has_ended, waits_for, tag, is_sending; /* waits_for: a chip, or -1 */
    struct line *from;                         /* per sender */
};

static struct place *places;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int waiting, running;

/* Read by the address sanitizer: the host model has a signal stack of its own, which the sanitizer would unmap. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "use_sigaltstack=0";
}

static _Noreturn void give_up(int chip, const char *what) {
    fprintf(stderr, "chip %d: %s\n", chip, what);
    exit(1);
}

static _Noreturn void lost(int chip, const char *why) {
    const struct place *p = &places[chip];
    fprintf(stderr, "chip %d waits to %s tag %d %s chip %d, %s\n", chip, p->is_sending ? "send" : "receive", p->tag,
            p->is_sending ? "to" : "from", p->waits_for, why);
    fflush(stderr);
    _Exit(CHIP_LOST);
}

/* Waits until something changes for a chip; called, and returns, with the lock held. */
static void wait_for(int chip, int peer, int tag, int is_sending) {
    struct place *p = &places[chip];
    p->waits_for = peer, p->tag = tag, p->is_sending = is_sending;
    if (places[peer].has_ended) lost(chip, "which has ended");
    if (++waiting == running) lost(chip, "and all other chips wait as well");
    while (p->waits_for >= 0) pthread_cond_wait(&p->moved, &lock);
}

/* A chip that waited may go on: it counts as running from here on, whenever its thread wakes up. */
static void wake(int chip) {
    if (places[chip].waits_for < 0) return;
    places[chip].waits_for = -1;
    waiting--;
    pthread_cond_signal(&places[chip].moved);
}

static void carry(void *context, int peer, int tag, const void *from, uint32_t bytes) {
    const int chip = (int)((struct place *)context - places);
    struct message *message = malloc(sizeof *message);
    void *data = malloc(bytes ? bytes : 1);
    if (!message || !data) give_up(chip, "out of memory");
    memcpy(data, from, bytes);
    *message = (struct message){tag, bytes, data, NULL};
    pthread_mutex_lock(&lock);
    struct line *line = &places[peer].from[chip];
    while (line->count >= CHIP_QUEUE) wait_for(chip, peer, tag, 1);
    struct message **end = &line->first;
    while (*end) end = &(*end)->next;
    *end = message;
    line->count++;
    if (places[peer].waits_for == chip && !places[peer].is_sending) wake(peer);
    pthread_mutex_unlock(&lock);
}

static void deliver(void *context, int peer, int tag, void *to, uint32_t bytes) {
    const int chip = (int)((struct place *)context - places);
    pthread_mutex_lock(&lock);
    struct line *line = &places[chip].from[peer];
    while (!line->first) wait_for(chip, peer, tag, 0);
    struct message *message = line->first;
    line->first = message->next;
    line->count--;
    if (places[peer].waits_for == chip && places[peer].is_sending) wake(peer);
    pthread_mutex_unlock(&lock);
    if (message->tag != tag || message->bytes != bytes) {
        fprintf(stderr, "chip %d expects tag %d of %u bytes from chip %d, which sends tag %d of %u bytes\n", chip, tag,
                (unsigned)bytes, peer, message->tag, (unsigned)message->bytes);
        _Exit(CHIP_LOST);
    }
    memcpy(to, message->data, bytes);
    free(message->data);
    free(message);
}

/* A chip that ends leaves those that wait for it for ever: they find out when they look again. */
static void *run(void *argument) {
    struct place *p = argument;
    p->status = p->run(p->argc, p->argv);
    const int chip = (int)(p - places);
    pthread_mutex_lock(&lock);
    p->has_ended = 1;
    running--;
    if (p->status) fprintf(stderr, "chip %d ended with status %d\n", chip, p->status);
    for (int other = 0; other < CHIPS; other++) {
        if (places[other].waits_for == chip) lost(other, "which has ended");
    }
    if (running && waiting == running) {
        for (int other = 0; other < CHIPS; other++) {
            if (places[other].waits_for >= 0) lost(other, "and all other chips wait as well");
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void load(int chip, const char *program, const char *folder) {
    struct place *p = &places[chip];
    char path[CHIP_PATH];
    chip_library_path(path, program, chip);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) give_up(chip, dlerror());
    chip_connect_function *connect;
    *(void **)&connect = dlsym(library, "chip_connect");
    *(void **)&p->run = dlsym(library, "chip_main");
    if (!connect || !p->run) give_up(chip, "its library has no chip_main");
    p->argv = chip_arguments(folder, chip, &p->argc);
    if (!p->argv) give_up(chip, "the file of its arguments cannot be read");
    p->from = calloc(CHIPS, sizeof *p->from);
    if (!p->from) give_up(chip, "out of memory");
    p->transport = (struct chip_transport){p, carry, deliver};
    p->waits_for = -1;
    pthread_cond_init(&p->moved, NULL);
    connect(chip, &p->transport);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: application FOLDER\n");
        return 1;
    }
    places = calloc(CHIPS, sizeof *places);
    if (!places) give_up(0, "out of memory");
    for (int chip = 0; chip < CHIPS; chip++) load(chip, argv[0], argv[1]);
    running = CHIPS;
    for (int chip = 0; chip < CHIPS; chip++) {
        if (pthread_create(&places[chip].thread, NULL, run, &places[chip])) give_up(chip, "no thread can be started");
    }
    int status = 0;
    for (int chip = 0; chip < CHIPS; chip++) {
        pthread_join(places[chip].thread, NULL);
        if (!status) status = places[chip].status;
    }
    return status;
}
