/* Runs a network of the project on a file of inputs, on the host model of the machine.
 *
 * application NETWORK INPUTS OUTPUTS SAMPLES [OPTION VALUE]...: INPUTS holds SAMPLES times all inputs one after the
 * other, as raw bytes; OUTPUTS receives the outputs in the same way.
 *   --constants FILE   the constants of all far levels, one level after the other
 *   --snapshot FILE    receives memory after every step of the first inference (see model.h); implies --mode early
 *   --counters FILE    receives bytes moved and memory used by the last inference, as JSON
 *   --mode MODE        when transfers arrive: early, late (the default), random
 *   --seed NUMBER      seed of all random choices
 *   --repeat N         runs every sample N times; all outputs must be equal
 *   --sequence 1       samples are steps of one sequence; without it, every inference begins with empty states
 *
 * application NETWORK --generate PROMPT TOKENS MOST END TEMPERATURE TOP_P SEED [OPTION VALUE]...: generates tokens (see
 * tokens.h), with the options --constants, --counters, --mode and --seed.
 * Exit status: 0 on success, 1 if it could not run, 70 if a rule of the machine was broken.
 */
#include <stdlib.h>
#include <string.h>

#include "../tokens.h"
#include "deeploy_network.h"
#include "model.h"

struct options {
    const char *constants, *snapshot, *counters, *mode;
    uint64_t seed;
    int repeat, sequence;
};

struct job {
    const struct deeploy_network *net;
    void **inputs, **outputs, **kept_inputs, **first_outputs, **old_outputs;
    FILE *in, *out;
};

static int fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    return 1;
}

static int parse(int argc, char **argv, struct options *options) {
    for (int i = 0; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value) return fail("an option lacks its value");
        if (!strcmp(argv[i], "--constants"))
            options->constants = value;
        else if (!strcmp(argv[i], "--snapshot"))
            options->snapshot = value;
        else if (!strcmp(argv[i], "--counters"))
            options->counters = value;
        else if (!strcmp(argv[i], "--mode"))
            options->mode = value;
        else if (!strcmp(argv[i], "--seed"))
            options->seed = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "--repeat"))
            options->repeat = atoi(value);
        else if (!strcmp(argv[i], "--sequence"))
            options->sequence = atoi(value);
        else
            return fail("there is no such option");
    }
    const char *mode = options->mode ? options->mode : options->snapshot ? "early" : "late";
    static const char *const modes[] = {[HOST_EARLY] = "early", [HOST_LATE] = "late", [HOST_RANDOM] = "random"};
    for (int i = HOST_EARLY; i <= HOST_RANDOM; i++) {
        if (strcmp(mode, modes[i])) continue;
        host_mode = (enum host_mode)i;
        return 0;
    }
    return fail("--mode is early, late or random");
}

static int load_constants(const char *path) {
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (path && !file) return fail("the file of constants cannot be read");
    int status = 0;
    for (int level = 0; level < rt_machine.levels && !status; level++) {
        struct host_place place;
        const uint32_t bytes = rt_machine.level[level].is_far ? rt_machine.level[level].constants : 0;
        if (!bytes || !host_find(rt_constants(level), &place)) continue;
        if (!file)
            status = fail("the network has constants in a far level: name their file with --constants");
        else if (fread(place.space.memory, 1, bytes, file) != bytes)
            status = fail("the file of constants is too short");
    }
    if (file && !status && fgetc(file) != EOF) status = fail("the file of constants is longer than the constants");
    if (file) fclose(file);
    return status;
}

static void **allocate(const struct deeploy_tensor *tensors, int count) {
    void **arrays = calloc((size_t)count + 1, sizeof(void *));
    if (!arrays) abort();
    for (int i = 0; i < count; i++) {
        arrays[i] = calloc(tensors[i].bytes ? tensors[i].bytes : 1, 1);
        if (!arrays[i]) abort();
    }
    return arrays;
}

static int transfer(void *const *arrays, const struct deeploy_tensor *tensors, int count, FILE *file, int write) {
    for (int i = 0; i < count; i++) {
        const size_t bytes = tensors[i].bytes;
        const size_t done = write ? fwrite(arrays[i], 1, bytes, file) : fread(arrays[i], 1, bytes, file);
        if (done != bytes) return 1;
    }
    return 0;
}

static void copy(void *const *to, void *const *from, const struct deeploy_tensor *tensors, int count) {
    for (int i = 0; i < count; i++) memcpy(to[i], from[i], tensors[i].bytes);
}

static void check_equal(void *const *a, void *const *b, const struct deeploy_tensor *tensors, int count,
                        const char *rule) {
    for (int i = 0; i < count; i++) {
        const unsigned char *x = a[i], *y = b[i];
        for (size_t at = 0; at < tensors[i].bytes; at++) {
            if (x[at] != y[at]) host_violation(rule, "byte %zu of %s differs", at, tensors[i].name);
        }
    }
}

/* Fills the caller's outputs with garbage before an inference; afterwards, reports outputs that were never written. */
static void poison_outputs(const struct job *job, int is_over) {
    for (int i = 0; i < job->net->output_count; i++) {
        const struct deeploy_tensor *tensor = &job->net->outputs[i];
        const struct host_space space = {
            .bytes = (uint32_t)tensor->bytes, .memory = job->outputs[i], .salt = UINT32_MAX};
        if (!is_over)
            host_poison(&space, 0, space.bytes);
        else if (space.bytes >= 16 && host_intact(&space, 0, space.bytes) == space.bytes)
            host_violation("A network writes all of its outputs.", "nobody has written the output %s", tensor->name);
    }
}

/* Outputs that are not new in every inference keep what they held where the network says that it does not write them.
 */
static void restore_outputs(const struct job *job) {
    struct host_place place;
    for (int i = 0; i < job->net->output_count; i++) {
        if (host_find((rt_address)job->outputs[i], &place) && !place.space.is_writable)
            memcpy(job->outputs[i], job->old_outputs[i], job->net->outputs[i].bytes);
    }
}

static int infer(const struct job *job, int is_first) {
    const struct deeploy_network *net = job->net;
    host_begin_inference();
    copy(job->old_outputs, job->outputs, net->outputs, net->output_count);
    poison_outputs(job, 0);
    if (net->run((const void *const *)job->inputs, job->outputs) != DEEPLOY_OK) return fail("run failed");
    restore_outputs(job);
    host_end_inference();
    poison_outputs(job, 1);
    check_equal(job->inputs, job->kept_inputs, net->inputs, net->input_count, "A network does not write its inputs.");
    if (is_first) copy(job->first_outputs, job->outputs, net->outputs, net->output_count);
    check_equal(job->outputs, job->first_outputs, net->outputs, net->output_count,
                "Equal inputs give equal outputs, whatever memory held before.");
    return 0;
}

static int run_samples(const struct job *job, int samples, const struct options *options) {
    const struct deeploy_network *net = job->net;
    for (int sample = 0; sample < samples; sample++) {
        if (transfer(job->inputs, net->inputs, net->input_count, job->in, 0))
            return fail("the input file is too short");
        copy(job->kept_inputs, job->inputs, net->inputs, net->input_count);
        for (int i = 0; i < options->repeat; i++) {
            if (net->seek && !options->sequence) net->seek(0);
            if (infer(job, i == 0)) return 1;
        }
        if (transfer(job->outputs, net->outputs, net->output_count, job->out, 1)) return fail("cannot write outputs");
    }
    return 0;
}

static const struct deeploy_network *network_named(const char *name) {
    for (int i = 0; i < deeploy_network_count; i++) {
        if (!strcmp(deeploy_networks[i]->name, name)) return deeploy_networks[i];
    }
    return NULL;
}

static size_t *sizes_of(const struct deeploy_tensor *tensors, int count) {
    size_t *sizes = calloc((size_t)count + 1, sizeof *sizes);
    if (!sizes) abort();
    for (int i = 0; i < count; i++) sizes[i] = tensors[i].bytes;
    return sizes;
}

static void release(void **arrays, int count) {
    for (int i = 0; i < count; i++) free(arrays[i]);
    free(arrays);
}

static int run_job(struct job *job, int samples, const struct options *options) {
    const struct deeploy_network *net = job->net;
    size_t *const sizes = sizes_of(net->outputs, net->output_count);
    FILE *snapshot = options->snapshot ? fopen(options->snapshot, "wb") : NULL;
    job->inputs = allocate(net->inputs, net->input_count), job->kept_inputs = allocate(net->inputs, net->input_count);
    job->outputs = allocate(net->outputs, net->output_count);
    job->first_outputs = allocate(net->outputs, net->output_count);
    job->old_outputs = allocate(net->outputs, net->output_count);
    int status = options->snapshot && !snapshot ? fail("the snapshot cannot be written") : 0;
    if (snapshot) host_take_snapshots(snapshot, job->outputs, sizes, net->output_count);
    if (!status && net->init(NULL, 0) != DEEPLOY_OK) status = fail("init failed");
    host_end_initialisation();
    host_keep_regions();
    if (!status) status = run_samples(job, samples, options);
    if (snapshot && fclose(snapshot)) status = fail("the snapshot cannot be written");
    release(job->inputs, net->input_count), release(job->kept_inputs, net->input_count);
    release(job->outputs, net->output_count), release(job->first_outputs, net->output_count);
    release(job->old_outputs, net->output_count);
    free(sizes);
    return status;
}

/* Every inference is checked as the samples of run_samples are, but for its inputs and outputs, which are the
 * project's. */
static int generate(const struct deeploy_network *net, char **argv, const struct options *options) {
    if (!net) return fail("no network of that name");
    host_open(options->seed);
    int status = load_constants(options->constants);
    for (int i = 0; i < deeploy_network_count && !status; i++)
        status = deeploy_networks[i]->init(NULL, 0) == DEEPLOY_OK ? 0 : fail("init failed");
    host_end_initialisation();
    host_keep_regions();
    host_begin_inference();
    if (!status) status = write_tokens(net, TOKEN_ARGUMENTS, argv);
    host_end_inference();
    if (!status && options->counters && host_write_counters(options->counters))
        status = fail("the counters cannot be written");
    return status;
}

int main(int argc, char **argv); /* a chip among others gives it another name */

int main(int argc, char **argv) {
    struct options options = {.seed = 1, .repeat = 1};
    if (argc < 5) return fail("usage: application NETWORK INPUTS OUTPUTS SAMPLES [OPTION VALUE]...");
    const int is_text = !strcmp(argv[2], "--generate"), first = is_text ? 3 + TOKEN_ARGUMENTS : 5;
    if (parse(argc - first, argv + first, &options)) return 1;
    if (is_text) return generate(network_named(argv[1]), argv + 3, &options);
    struct job job = {.net = network_named(argv[1]), .in = fopen(argv[2], "rb"), .out = fopen(argv[3], "wb")};
    if (!job.net) return fail("no network of that name");
    if (!job.in || !job.out) return fail("cannot open the files of inputs and outputs");
    host_open(options.seed);
    int status = load_constants(options.constants);
    if (!status) status = run_job(&job, atoi(argv[4]), &options);
    if (!status && options.counters && host_write_counters(options.counters))
        status = fail("the counters cannot be written");
    fclose(job.in);
    return (fclose(job.out) != 0) | status;
}
