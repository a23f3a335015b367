/* Runs the project's network once on inputs.bin and prints the cycles of every team, forked twice: first with the
 * instructions that it finds, then with its own in the caches; and those of every layer, without the second time of its
 * teams. Linked with --wrap=rt_fork; with -DONE_TEAM teams are forked once, and are not measured. With -DBARRIERS, and
 * linked with --wrap=rt_barrier, it prints the cycles of the first core from one barrier to the next one as well.
 *
 *     fork NUMBER FIRST SECOND
 *     layer INDEX CYCLES
 *     barrier NUMBER CYCLES
 */
#include "bare.h"
#include "cluster.h"
#include "console.h"
#include "deeploy_network.h"
#include "deeploy_rt.h"

enum { FORKS = 4096, LAYERS = 256 };

static uint32_t first[FORKS], second[FORKS], layers[LAYERS];
static uint32_t forks;
static IN_L1 uint32_t
    begun; /* when the layer began that runs; in L1, as what is counted on the way takes time itself */

#ifndef ONE_TEAM
void __real_rt_fork(int cores, void (*body)(void *), void *argument);
void __wrap_rt_fork(int cores, void (*body)(void *), void *argument);

void __wrap_rt_fork(int cores, void (*body)(void *), void *argument) {
    const uint32_t begin = rt_cycles();
    __real_rt_fork(cores, body, argument);
    const uint32_t middle = rt_cycles();
    __real_rt_fork(cores, body, argument);
    const uint32_t end = rt_cycles();
    if (forks < FORKS) first[forks] = middle - begin, second[forks] = end - middle;
    forks++;
    begun += rt_cycles() - middle;
}
#endif

#ifdef BARRIERS
enum { MOST_BARRIERS = 1024 };
static IN_L1 uint32_t passed[MOST_BARRIERS];
static IN_L1 uint32_t barriers;

void __real_rt_barrier(void);
void __wrap_rt_barrier(void);

void __wrap_rt_barrier(void) {
    __real_rt_barrier();
    if (rt_core() == 0 && barriers < MOST_BARRIERS) passed[barriers++] = rt_cycles();
}
#endif

void deeploy_profile(const char *name, int index, int end) {
    (void)name;
    if (index >= LAYERS) return;
    if (end)
        layers[index] = rt_cycles() - begun;
    else
        begun = rt_cycles();
}

static void print(const char *what, const uint32_t *numbers, int count) {
    print_text(what);
    for (int i = 0; i < count; i++) {
        print_text(" ");
        print_number((int32_t)numbers[i]);
    }
    print_text("\n");
}

static void allocate(void **arrays, const struct deeploy_tensor *tensors, int count) {
    for (int i = 0; i < count; i++) arrays[i] = bare_allocate(tensors[i].bytes);
}

int controller_main(void) {
    bare_set_up();
    bare_load_constants("weights.bin");
    const struct deeploy_network *const net = deeploy_networks[0];
    void **const inputs = bare_allocate((uint32_t)(net->input_count + 1) * sizeof *inputs);
    void **const outputs = bare_allocate((uint32_t)(net->output_count + 1) * sizeof *outputs);
    allocate(inputs, net->inputs, net->input_count);
    allocate(outputs, net->outputs, net->output_count);
    const int in = file_open("inputs.bin", 0);
    for (int i = 0; i < net->input_count; i++) {
        if (file_read(in, inputs[i], net->inputs[i].bytes)) return 4;
    }
    if (net->init(0, 0) != DEEPLOY_OK) return 2;
    if (net->run((const void *const *)inputs, outputs) != DEEPLOY_OK) return 5;
    for (uint32_t i = 0; i < forks && i < FORKS; i++) print("fork", (const uint32_t[]){i, first[i], second[i]}, 3);
    for (uint32_t i = 0; i < LAYERS; i++) {
        if (layers[i]) print("layer", (const uint32_t[]){i, layers[i]}, 2);
    }
#ifdef BARRIERS
    for (uint32_t i = 1; i < barriers; i++) print("barrier", (const uint32_t[]){i, passed[i] - passed[i - 1]}, 2);
#endif
    return 0;
}
