/* Runs a network of the project on a file of inputs.
 *
 * application NETWORK INPUTS OUTPUTS SAMPLES [REPEAT]: INPUTS holds SAMPLES times all inputs one after the other, as
 * raw bytes; OUTPUTS receives the outputs in the same way. With REPEAT, the median time of that many inferences of the
 * first sample is printed, in nanoseconds. Built with DEEPLOY_PROFILE, a sixth argument names a file that receives the
 * arena and all outputs as they are after every layer of the first sample. With --sequence as the last argument,
 * samples are steps of one sequence; without it, states begin anew with every sample.
 *
 * application NETWORK --generate ...: writes tokens (see tokens.h).
 * application NETWORK --self-test: runs SELF_TEST, the network's self-test, if it was built with that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "deeploy_network.h"
#include "tokens.h"

static int fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    return 1;
}

static void *allocate(size_t bytes) {
    return aligned_alloc(64, (bytes / 64 + 1) * 64);
}

static int transfer(void *const *arrays, const struct deeploy_tensor *tensors, int count, FILE *file, int write) {
    for (int i = 0; i < count; i++) {
        const size_t bytes = tensors[i].bytes;
        const size_t done = write ? fwrite(arrays[i], 1, bytes, file) : fread(arrays[i], 1, bytes, file);
        if (done != bytes) return 1;
    }
    return 0;
}

#ifdef DEEPLOY_PROFILE
static struct {
    FILE *file;
    const struct deeploy_network *net;
    void *arena;
    void **outputs;
} snapshot;

void deeploy_profile(const char *layer, int index, int end) {
    (void)layer;
    (void)index;
    if (!end || !snapshot.file) return;
    fwrite(snapshot.arena, 1, snapshot.net->arena_bytes, snapshot.file);
    transfer(snapshot.outputs, snapshot.net->outputs, snapshot.net->output_count, snapshot.file, 1);
}
#endif

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int measure(const struct deeploy_network *net, void **inputs, void **outputs, int repeat) {
    double *times = malloc(sizeof(double) * (size_t)repeat);
    if (!times) return fail("out of memory");
    for (int i = 0; i < repeat; i++) {
        if (net->seek) net->seek(0);
        const double start = now();
        net->run((const void *const *)inputs, outputs);
        times[i] = now() - start;
    }
    qsort(times, (size_t)repeat, sizeof(double), compare);
    printf("%.0f\n", times[repeat / 2]);
    free(times);
    return 0;
}

/* All networks of the project get one arena, and may share states in it. */
static int generate(const struct deeploy_network *net, int argc, char **argv) {
    size_t bytes = 0;
    for (int i = 0; i < deeploy_network_count; i++)
        bytes = deeploy_networks[i]->arena_bytes > bytes ? deeploy_networks[i]->arena_bytes : bytes;
    void *arena = allocate(bytes);
    int status = arena ? 0 : fail("out of memory");
    for (int i = 0; i < deeploy_network_count && !status; i++)
        status = deeploy_networks[i]->init(arena, bytes) == DEEPLOY_OK ? 0 : fail("init failed");
    if (!status) status = write_tokens(net, argc, argv);
    free(arena);
    return status;
}

#ifdef SELF_TEST
int SELF_TEST(int (*put)(int), uint32_t (*clock)(void));

static uint32_t nanoseconds(void) {
    return (uint32_t)(uint64_t)now();
}

static int test(const struct deeploy_network *net) {
    void *arena = allocate(net->arena_bytes);
    if (!arena || net->init(arena, net->arena_bytes) != DEEPLOY_OK) return fail("init failed");
    SELF_TEST(putchar, nanoseconds);
    free(arena);
    return 0;
}
#endif

int main(int argc, char **argv); /* a chip among others gives it another name */

int main(int argc, char **argv) {
    const int fewest = argc > 2 && !strcmp(argv[2], "--self-test") ? 3 : 5;
    if (argc < fewest) return fail("usage: application NETWORK INPUTS OUTPUTS SAMPLES [REPEAT]");
    const struct deeploy_network *net = NULL;
    for (int i = 0; i < deeploy_network_count; i++) {
        if (!strcmp(deeploy_networks[i]->name, argv[1])) net = deeploy_networks[i];
    }
    if (!net) return fail("no network of that name");
#ifdef SELF_TEST
    if (!strcmp(argv[2], "--self-test")) return test(net);
#endif
    if (!strcmp(argv[2], "--generate")) return generate(net, argc - 3, argv + 3);
    void **inputs = calloc((size_t)net->input_count + 1, sizeof(void *));
    void **outputs = calloc((size_t)net->output_count + 1, sizeof(void *));
    void *arena = allocate(net->arena_bytes);
    FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
    if (!inputs || !outputs || !arena || !in || !out) return fail("cannot open the files or allocate memory");
    for (int i = 0; i < net->input_count; i++) inputs[i] = allocate(net->inputs[i].bytes);
    for (int i = 0; i < net->output_count; i++) outputs[i] = allocate(net->outputs[i].bytes);
    if (net->init(arena, net->arena_bytes) != DEEPLOY_OK) return fail("init failed");
    const int sequence = net->seek && argc > 5 && !strcmp(argv[argc - 1], "--sequence");
    argc -= sequence;
    const int samples = atoi(argv[4]), repeat = argc > 5 ? atoi(argv[5]) : 0;
    int status = 0;
#ifdef DEEPLOY_PROFILE
    snapshot.file = argc > 6 ? fopen(argv[6], "wb") : NULL;
    snapshot.net = net, snapshot.arena = arena, snapshot.outputs = outputs;
#endif
    for (int s = 0; s < samples && !status; s++) {
        if (!sequence) { /* nothing but what init puts there may survive from one sample to the next */
            memset(arena, 0xA5 + s, net->arena_bytes);
            if (net->init(arena, net->arena_bytes) != DEEPLOY_OK) return fail("init failed");
        }
        if (!sequence && net->seek) net->seek(0);
        if (transfer(inputs, net->inputs, net->input_count, in, 0))
            status = fail("the input file is too short");
        else if (net->run((const void *const *)inputs, outputs) != DEEPLOY_OK)
            status = fail("run failed");
        else if (transfer(outputs, net->outputs, net->output_count, out, 1))
            status = fail("cannot write outputs");
        else if (repeat > 0 && s == 0)
            status = measure(net, inputs, outputs, repeat);
    }
#ifdef DEEPLOY_PROFILE
    if (snapshot.file) fclose(snapshot.file);
#endif
    for (int i = 0; i < net->input_count; i++) free(inputs[i]);
    for (int i = 0; i < net->output_count; i++) free(outputs[i]);
    free(inputs);
    free(outputs);
    free(arena);
    fclose(in);
    return (fclose(out) != 0) | status;
}
