/* Runs the project's network on every sample of inputs.bin and prints the cycles that its teams worked: fork, kernels
 * on data in L1, join; transfers are not counted. Linked with --wrap=rt_fork. The last line counts: instructions are
 * cached.
 *
 *     fork SAMPLE CYCLES
 */
#include "bare.h"
#include "console.h"
#include "deeploy_network.h"
#include "deeploy_rt.h"
#include "measure.h"

static uint32_t forked;

void __real_rt_fork(int cores, void (*body)(void *), void *argument);
void __wrap_rt_fork(int cores, void (*body)(void *), void *argument);

void __wrap_rt_fork(int cores, void (*body)(void *), void *argument) {
    const uint32_t begin = rt_cycles();
    __real_rt_fork(cores, body, argument);
    forked += rt_cycles() - begin;
}

int controller_main(void) {
    bare_set_up();
    bare_load_constants("weights.bin");
    const struct deeploy_network *const net = deeploy_networks[0];
    void **const inputs = bare_allocate((uint32_t)(net->input_count + 1) * sizeof *inputs);
    void **const outputs = bare_allocate((uint32_t)(net->output_count + 1) * sizeof *outputs);
    const uint32_t bytes = allocate_tensors(inputs, net->inputs, net->input_count, bare_allocate);
    allocate_tensors(outputs, net->outputs, net->output_count, bare_allocate);
    if (net->init(0, 0) != DEEPLOY_OK) return 2;
    const int in = file_open("inputs.bin", 0), out = file_open("outputs.bin", 1);
    if (in < 0 || out < 0 || !bytes) return 3;
    const int32_t samples = (int32_t)((uint32_t)file_bytes(in) / bytes);
    for (int32_t sample = 0; sample < samples; sample++) {
        for (int i = 0; i < net->input_count; i++) {
            if (file_read(in, inputs[i], net->inputs[i].bytes)) return 4;
        }
        forked = 0;
        if (net->run((const void *const *)inputs, outputs) != DEEPLOY_OK) return 5;
        print_text("fork ");
        print_number(sample);
        print_text(" ");
        print_number((int32_t)forked);
        print_text("\n");
        for (int i = 0; i < net->output_count; i++) {
            if (file_write(out, outputs[i], net->outputs[i].bytes)) return 6;
        }
    }
    file_close(out);
    return 0;
}
