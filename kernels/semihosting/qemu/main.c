/* Runs a network of the project, number NETWORK, under an emulator: `inputs.bin` holds the inputs of any number of
 * samples one after the other, as raw bytes, and `outputs.bin` receives the outputs in the same way. With SEQUENCE the
 * samples are steps of one sequence; without it, states begin anew with every sample. With DEEPLOY_PROFILE,
 * `snapshots.bin` receives the arena and all outputs as they are after every layer of the first sample; with
 * RT_CHECKED, on a machine with several memories, all of them (snapshots.h). With SELF_TEST, the name of a function, it
 * runs that alone. What goes wrong is printed as `error: ...`, and ends it with 1. */
#include "program.h"
#include "semihost.h"

#ifndef NETWORK
#define NETWORK 0
#endif

_Noreturn void program_fail(const char *what) {
    semihost_print("error: ");
    semihost_print(what);
    semihost_print("\n");
    semihost_exit(1);
}

static void write_all(int file, void *const *arrays, const struct deeploy_tensor *tensors, int count) {
    for (int i = 0; i < count; i++) {
        if (semihost_write(file, arrays[i], (uint32_t)tensors[i].bytes))
            program_fail("cannot write outputs.bin or snapshots.bin");
    }
}

#if defined(DEEPLOY_PROFILE) || defined(RT_CHECKED)
static struct {
    const struct program *program;
    int file; /* -1: not open */
} snapshot = {0, -1};
#endif

#ifdef RT_CHECKED
#include "snapshots.h"

static void snapshot_write(const void *bytes, uint32_t count) {
    if (snapshot.file >= 0 && count && semihost_write(snapshot.file, bytes, count))
        program_fail("cannot write snapshots.bin");
}
#endif

#ifdef DEEPLOY_PROFILE
void deeploy_profile(const char *layer, int index, int end) {
    (void)layer;
    (void)index;
    if (!end || snapshot.file < 0) return;
    const struct deeploy_network *const net = snapshot.program->net;
    if (net->arena_bytes && semihost_write(snapshot.file, snapshot.program->arena, (uint32_t)net->arena_bytes))
        program_fail("cannot write snapshots.bin");
    write_all(snapshot.file, snapshot.program->outputs, net->outputs, net->output_count);
}
#endif

#ifdef SELF_TEST
int SELF_TEST(int (*put)(int), uint32_t (*clock)(void));

static int put(int byte) {
    const char text[] = {(char)byte, 0};
    semihost_print(text);
    return byte;
}
#endif

int main(void) {
    const struct program program = program_begin(deeploy_networks[NETWORK]);
    const struct deeploy_network *const net = program.net;
#ifdef SELF_TEST
    SELF_TEST(put, 0);
    semihost_exit(0);
#endif
    const uint32_t bytes = program_bytes(net->inputs, net->input_count);
    const int in = bytes ? semihost_open("inputs.bin", SEMIHOST_READ) : -1;
    const int out = semihost_open("outputs.bin", SEMIHOST_WRITE);
    if ((bytes && in < 0) || out < 0) program_fail("cannot open inputs.bin or outputs.bin");
#if defined(DEEPLOY_PROFILE) || defined(RT_CHECKED)
    snapshot.program = &program;
    snapshot.file = semihost_open("snapshots.bin", SEMIHOST_WRITE);
    if (snapshot.file < 0) program_fail("cannot open snapshots.bin");
#endif
#ifdef RT_CHECKED
    snapshot_begin(net, program.outputs, program_allocate(SNAPSHOT_PIECE));
#endif
    const uint32_t samples = bytes ? (uint32_t)semihost_length(in) / bytes : 1;
    for (uint32_t sample = 0; sample < samples; sample++) {
#ifndef SEQUENCE
        if (net->seek) net->seek(0);
#endif
        for (int i = 0; i < net->input_count; i++) {
            if (semihost_read(in, program.inputs[i], (uint32_t)net->inputs[i].bytes))
                program_fail("cannot read inputs.bin");
        }
        if (net->run((const void *const *)program.inputs, program.outputs) != DEEPLOY_OK) program_fail("run failed");
        write_all(out, program.outputs, net->outputs, net->output_count);
#if defined(DEEPLOY_PROFILE) || defined(RT_CHECKED)
        if (snapshot.file >= 0) semihost_close(snapshot.file);
        snapshot.file = -1;
#endif
    }
    semihost_close(out);
    semihost_exit(0);
}
