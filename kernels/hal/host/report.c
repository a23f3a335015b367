/* Output of the model: violations on stderr, counters as JSON, the header of a snapshot file. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

struct host_counters host_counters;
int host_chip = -1;

static void tell(const char *rule, const char *format, va_list arguments) {
    char what[4 * HOST_TEXT];
    vsnprintf(what, sizeof what, format, arguments);
    fflush(stdout);
    const int step = host_step(), core = host_team_core();
    fprintf(stderr, "host model: ");
    if (host_chip >= 0) fprintf(stderr, "chip %d, ", host_chip);
    if (step == HOST_NO_STEP)
        fprintf(stderr, "outside of all steps");
    else
        fprintf(stderr, "step %d", step);
    if (core >= 0) fprintf(stderr, ", core %d", core);
    fprintf(stderr, ": %s\n  %s\n", what, rule);
    fflush(stderr);
}

/* The first line says what happened and where, the second one which rule was broken. */
void host_tell(const char *rule, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tell(rule, format, arguments);
    va_end(arguments);
}

/* Reports the same and ends the program. */
void host_violation(const char *rule, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tell(rule, format, arguments);
    va_end(arguments);
    _Exit(HOST_VIOLATION);
}

static void *table(void *old, size_t count, size_t bytes) {
    free(old);
    void *fresh = calloc(count + 1, bytes);
    if (!fresh) abort();
    return fresh;
}

void host_reset_counters(void) {
    struct host_counters *const c = &host_counters;
    const size_t levels = (size_t)rt_machine.levels;
    c->engine = table(c->engine, (size_t)rt_machine.engines, sizeof *c->engine);
    c->planned = table(c->planned, levels, sizeof *c->planned);
    c->touched = table(c->touched, levels, sizeof *c->touched);
    c->step_bytes = table(c->step_bytes, 0, sizeof *c->step_bytes);
    c->steps = 1;
    c->forks = c->barriers = c->jobs = 0;
    c->link.sends = c->link.receives = c->link.sent = c->link.received = 0;
}

void host_count_step_bytes(uint64_t bytes) {
    struct host_counters *const c = &host_counters;
    const int index = host_step() < 0 ? 0 : host_step() + 1;
    if (index >= c->steps) {
        c->step_bytes = realloc(c->step_bytes, sizeof *c->step_bytes * ((size_t)index + 1));
        if (!c->step_bytes) abort();
        for (; c->steps <= index; c->steps++) c->step_bytes[c->steps] = 0;
    }
    c->step_bytes[index] += bytes;
}

/* The counters of the last inference, as JSON. Returns 0 on success. */
int host_write_counters(const char *path) {
    const struct host_counters *const c = &host_counters;
    FILE *file = fopen(path, "w");
    if (!file) return 1;
    fprintf(file, "{\n  \"machine\": \"%s\",\n  \"engines\": {", rt_machine.name);
    for (int i = 0; i < rt_machine.engines; i++) {
        const struct host_traffic *t = &c->engine[i];
        fprintf(file,
                "%s\n    \"%s\": {\"transfers\": %" PRIu64 ", \"rows\": %" PRIu64 ", \"bytes_to_near\": %" PRIu64
                ", \"bytes_to_far\": %" PRIu64 ", \"waits\": %" PRIu64 ", \"outstanding\": %" PRIu32 "}",
                i ? "," : "", rt_machine.engine[i].name, t->transfers, t->rows, t->bytes_to_near, t->bytes_to_far,
                t->waits, t->outstanding);
    }
    fprintf(file, "\n  },\n  \"levels\": {");
    for (int i = 0; i < rt_machine.levels; i++) {
        fprintf(file, "%s\n    \"%s\": {\"capacity\": %" PRIu32 ", \"planned\": %" PRIu32 ", \"touched\": %" PRIu32 "}",
                i ? "," : "", host_level_name(i), rt_machine.level[i].capacity, c->planned[i], c->touched[i]);
    }
    fprintf(file, "\n  },");
    if (host_chip >= 0) {
        fprintf(file,
                "\n  \"link\": {\"sends\": %" PRIu64 ", \"receives\": %" PRIu64 ", \"sent\": %" PRIu64
                ", \"received\": %" PRIu64 "},",
                c->link.sends, c->link.receives, c->link.sent, c->link.received);
    }
    if (rt_machine.accelerators) fprintf(file, "\n  \"jobs\": %" PRIu64 ",", c->jobs);
    fprintf(file,
            "\n  \"forks\": %" PRIu64 ",\n  \"barriers\": %" PRIu64 ",\n  \"bytes_before_step_0\": %" PRIu64
            ",\n  \"step_bytes\": [",
            c->forks, c->barriers, c->step_bytes[0]);
    for (int i = 1; i < c->steps; i++) fprintf(file, "%s%" PRIu64, i > 1 ? ", " : "", c->step_bytes[i]);
    fprintf(file, "]\n}\n");
    return fclose(file) != 0;
}

void host_snapshot_header(FILE *file, const uint32_t *level_bytes, uint32_t output_bytes) {
    const uint32_t levels = (uint32_t)rt_machine.levels;
    fwrite(&levels, sizeof levels, 1, file);
    fwrite(level_bytes, sizeof *level_bytes, levels, file);
    fwrite(&output_bytes, sizeof output_bytes, 1, file);
}
