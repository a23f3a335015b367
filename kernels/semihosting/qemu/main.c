/* Runs a network of the project, number NETWORK, under an emulator: `inputs.bin` holds the inputs of any number of
 * samples one after the other, as raw bytes, and `outputs.bin` receives the outputs in the same way. With SEQUENCE the
 * samples are steps of one sequence; without it, states begin anew with every sample. With DEEPLOY_PROFILE,
 * `snapshots.bin` receives the arena and all outputs as they are after every layer of the first sample. What goes wrong
 * is printed as `error: ...`, and ends it with 1. */
#include "deeploy_network.h"
#include "semihost.h"

#ifndef NETWORK
#define NETWORK 0
#endif

extern unsigned char __heap_start[], __heap_end[]; /* of link.ld */

static unsigned char *heap = __heap_start;

static void fail(const char *what) {
    semihost_print("error: ");
    semihost_print(what);
    semihost_print("\n");
    semihost_exit(1);
}

static void *allocate(uint32_t bytes) {
    const uint32_t rounded = (bytes + 63) & ~63u;
    unsigned char *const result = heap;
    if (rounded < bytes || rounded > (uint32_t)(__heap_end - heap))
        fail("inputs, outputs and arena: no room in memory");
    heap += rounded;
    return result;
}

static void **allocate_all(const struct deeploy_tensor *tensors, int count) {
    void **const arrays = allocate((uint32_t)(count + 1) * (uint32_t)sizeof *arrays);
    for (int i = 0; i < count; i++) arrays[i] = allocate((uint32_t)tensors[i].bytes);
    return arrays;
}

static uint32_t bytes_of(const struct deeploy_tensor *tensors, int count) {
    uint32_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += (uint32_t)tensors[i].bytes;
    return bytes;
}

static void write_all(int file, void *const *arrays, const struct deeploy_tensor *tensors, int count) {
    for (int i = 0; i < count; i++) {
        if (semihost_write(file, arrays[i], (uint32_t)tensors[i].bytes))
            fail("cannot write outputs.bin or snapshots.bin");
    }
}

#ifdef DEEPLOY_PROFILE
static struct {
    const struct deeploy_network *net;
    const void *arena;
    void **outputs;
    int file; /* -1: not open */
} snapshot = {0, 0, 0, -1};

void deeploy_profile(const char *layer, int index, int end) {
    (void)layer;
    (void)index;
    if (!end || snapshot.file < 0) return;
    const uint32_t bytes = (uint32_t)snapshot.net->arena_bytes;
    if (bytes && semihost_write(snapshot.file, snapshot.arena, bytes)) fail("cannot write snapshots.bin");
    write_all(snapshot.file, snapshot.outputs, snapshot.net->outputs, snapshot.net->output_count);
}
#endif

int main(void) {
    const struct deeploy_network *const net = deeploy_networks[NETWORK];
    heap = (unsigned char *)(((uintptr_t)heap + 63) & ~(uintptr_t)63);
    void **const inputs = allocate_all(net->inputs, net->input_count);
    void **const outputs = allocate_all(net->outputs, net->output_count);
    void *const arena = net->arena_bytes ? allocate((uint32_t)net->arena_bytes) : 0;
    if (net->init(arena, net->arena_bytes) != DEEPLOY_OK) fail("init failed");
    const uint32_t bytes = bytes_of(net->inputs, net->input_count);
    const int in = bytes ? semihost_open("inputs.bin", SEMIHOST_READ) : -1;
    const int out = semihost_open("outputs.bin", SEMIHOST_WRITE);
    if ((bytes && in < 0) || out < 0) fail("cannot open inputs.bin or outputs.bin");
#ifdef DEEPLOY_PROFILE
    snapshot.net = net;
    snapshot.arena = arena;
    snapshot.outputs = outputs;
    snapshot.file = semihost_open("snapshots.bin", SEMIHOST_WRITE);
    if (snapshot.file < 0) fail("cannot open snapshots.bin");
#endif
    const uint32_t samples = bytes ? (uint32_t)semihost_length(in) / bytes : 1;
    for (uint32_t sample = 0; sample < samples; sample++) {
#ifndef SEQUENCE
        if (net->seek) net->seek(0);
#endif
        for (int i = 0; i < net->input_count; i++) {
            if (semihost_read(in, inputs[i], (uint32_t)net->inputs[i].bytes)) fail("cannot read inputs.bin");
        }
        if (net->run((const void *const *)inputs, outputs) != DEEPLOY_OK) fail("run failed");
        write_all(out, outputs, net->outputs, net->output_count);
#ifdef DEEPLOY_PROFILE
        if (snapshot.file >= 0) semihost_close(snapshot.file);
        snapshot.file = -1;
#endif
    }
    semihost_close(out);
    semihost_exit(0);
}
