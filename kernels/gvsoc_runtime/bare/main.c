/* Runs a network of the project, number NETWORK, on the simulator, with the controller in charge.
 *
 * In the simulator's working directory: `inputs.bin` holds the inputs of any number of samples one after the other, as
 * raw bytes; `outputs.bin` receives the outputs in the same way; `weights.bin` holds the constants of HyperRAM, then
 * those of the weight memory, if there are any. For a chip of several that has no inputs, `inputs.bin` holds a byte for
 * each sample, and how long it waits for messages is not measured. What is measured comes as lines, in cycles of the
 * machine:
 *
 *     layer SAMPLE INDEX NAME CYCLES     with -DDEEPLOY_PROFILE
 *     total SAMPLE CYCLES
 *     stack CORE USED BYTES              once, at the end
 *
 * With -DRT_CHECKED, `snapshots.bin` receives what memory holds at the end of every step of the first sample
 * (snapshots.h).
 */
#include "bare.h"
#include "board.h"
#include "console.h"
#include "deeploy_network.h"

#define CYCLES() bare_cycles()
#include "../measure.h"

#ifdef RT_CHECKED
#include "snapshots.h"

static int snapshot_file = -1;

static void snapshot_write(const void *bytes, uint32_t count) {
    if (snapshot_file >= 0 && count && file_write(snapshot_file, bytes, count)) bare_fail("cannot write snapshots.bin");
}
#endif

#ifndef NETWORK
#define NETWORK 0
#endif

static void print_line(const char *what, const int32_t *numbers, int count) {
    print_text(what);
    for (int i = 0; i < count; i++) {
        print_text(" ");
        print_number(numbers[i]);
    }
    print_text("\n");
}

#ifdef DEEPLOY_PROFILE
static void print_layers(int32_t sample) {
    for (int32_t i = 0; i < LAYERS; i++) {
        if (!layers[i].name) continue;
        print_text("layer ");
        print_number(sample);
        print_text(" ");
        print_number(i);
        print_text(" ");
        print_line(layers[i].name, (const int32_t *)&layers[i].cycles, 1);
        layers[i].cycles = 0;
    }
}
#endif

static void run_sample(const struct deeploy_network *net, void **inputs, void **outputs, int32_t sample) {
    const uint32_t begin = measured_cycles();
    if (net->run((const void *const *)inputs, outputs) != DEEPLOY_OK) bare_fail("run failed");
    const int32_t total[] = {sample, (int32_t)(measured_cycles() - begin)};
#ifdef DEEPLOY_PROFILE
    print_layers(sample);
#endif
    print_line("total", total, 2);
}

int controller_main(void) {
    bare_set_up();
    bare_load_constants("weights.bin");
    const struct deeploy_network *const net = deeploy_networks[NETWORK];
    void **const inputs = bare_allocate((uint32_t)(net->input_count + 1) * sizeof *inputs);
    void **const outputs = bare_allocate((uint32_t)(net->output_count + 1) * sizeof *outputs);
    const uint32_t given = allocate_tensors(inputs, net->inputs, net->input_count, bare_allocate);
    allocate_tensors(outputs, net->outputs, net->output_count, bare_allocate);
    if (net->init(0, 0) != DEEPLOY_OK) bare_fail("init failed");

#ifdef CHIP
    const uint32_t bytes = given ? given : 1;
#else
    const uint32_t bytes = given;
#endif
    const int in = bytes ? file_open("inputs.bin", 0) : -1, out = file_open("outputs.bin", 1);
    if ((bytes && in < 0) || out < 0) bare_fail("cannot open inputs.bin or outputs.bin");
    const uint32_t there = bytes ? (uint32_t)file_bytes(in) : 0;
    if (bytes && (!there || there % bytes)) bare_fail("inputs.bin holds no whole number of samples");
    const int32_t samples = bytes ? (int32_t)(there / bytes) : 1;
#ifdef RT_CHECKED
    snapshot_file = file_open("snapshots.bin", 1);
    if (snapshot_file < 0) bare_fail("cannot open snapshots.bin");
    snapshot_begin(net, outputs, bare_allocate(SNAPSHOT_PIECE));
#endif
    for (int32_t sample = 0; sample < samples; sample++) {
        for (int i = 0; i < net->input_count; i++) {
            if (file_read(in, inputs[i], net->inputs[i].bytes)) bare_fail("cannot read inputs.bin");
        }
        run_sample(net, inputs, outputs, sample);
#ifdef RT_CHECKED
        if (snapshot_file >= 0) file_close(snapshot_file);
        snapshot_file = -1;
#endif
        for (int i = 0; i < net->output_count; i++) {
            if (file_write(out, outputs[i], net->outputs[i].bytes)) bare_fail("cannot write outputs.bin");
        }
    }
    file_close(out);
    for (int32_t core = 0; core < BARE_CORES; core++) {
        const int32_t stack[] = {core, (int32_t)bare_stack_used(core), (int32_t)bare_stack_bytes(core)};
        print_line("stack", stack, 3);
    }
    return 0;
}
