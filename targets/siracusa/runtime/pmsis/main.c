/* Runs the project's first network on the chip or its simulator, with the controller in charge.
 *
 * The SDK's host file system is the simulator's working directory: `inputs.bin` holds the inputs of any number of
 * samples one after the other, as raw bytes; `outputs.bin` receives the outputs in the same way; `weights.bin` holds
 * the constants of HyperRAM, then those of the weight memory, if there are any. What is measured comes as lines, in
 * cycles of the cluster:
 *
 *     layer SAMPLE INDEX NAME CYCLES     with -DDEEPLOY_PROFILE
 *     total SAMPLE CYCLES
 *     stack CORE USED BYTES              once, at the end
 */
#include "../measure.h"
#include "bsp/fs.h"
#include "bsp/fs/hostfs.h"
#include "deeploy_network.h"
#include "pmsis.h"
#include "sdk.h"

static struct pi_device files;

#ifdef DEEPLOY_PROFILE
static void print_layers(int sample) {
    for (int i = 0; i < LAYERS; i++) {
        if (layers[i].name) printf("layer %d %d %s %d\n", sample, i, layers[i].name, (int)layers[i].cycles);
        layers[i].cycles = 0;
    }
}
#endif

static pi_fs_file_t *open_file(const char *path, int flags) {
    pi_fs_file_t *const file = pi_fs_open(&files, path, flags);
    if (!file) sdk_fail("cannot open inputs.bin, outputs.bin or weights.bin");
    return file;
}

static void load_level(pi_fs_file_t *file, int level, uint8_t *piece, uint32_t most) {
    const uint32_t bytes = rt_machine.level[level].constants;
    for (uint32_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < most ? bytes - done : most;
        if (pi_fs_read(file, piece, n) != (int32_t)n) sdk_fail("weights.bin is shorter than the constants");
        sdk_store_constants(level, done, piece, n);
    }
}

static void load_constants(void) {
    enum { PIECE = 16384 };
    uint32_t bytes = 0;
    for (int i = 0; i < rt_machine.levels; i++) bytes += rt_machine.level[i].constants;
    if (!bytes) return;
    uint8_t *const piece = pi_l2_malloc(PIECE);
    if (!piece) sdk_fail("no room in L2 to load constants through");
    pi_fs_file_t *const file = open_file("weights.bin", PI_FS_FLAGS_READ);
    for (int i = 0; i < rt_machine.levels; i++) load_level(file, i, piece, PIECE);
    if (pi_fs_read(file, piece, 1) != 0) sdk_fail("weights.bin is longer than the constants");
    pi_fs_close(file);
    pi_l2_free(piece, PIECE);
}

/* The next sample; 0 when there is none. */
static int read_sample(pi_fs_file_t *file, void **arrays, const struct deeploy_tensor *tensors, int count) {
    uint32_t wanted = 0, there = 0;
    for (int i = 0; i < count; i++) {
        wanted += tensors[i].bytes;
        if (tensors[i].bytes) there += (uint32_t)pi_fs_read(file, arrays[i], tensors[i].bytes);
    }
    if (there && there != wanted) sdk_fail("inputs.bin holds no whole number of samples");
    return there != 0;
}

static void run_sample(const struct deeploy_network *net, void **inputs, void **outputs, int sample) {
    const uint32_t begin = measured_cycles();
    if (net->run((const void *const *)inputs, outputs) != DEEPLOY_OK) sdk_fail("run failed");
    const uint32_t cycles = measured_cycles() - begin;
#ifdef DEEPLOY_PROFILE
    print_layers(sample);
#endif
    printf("total %d %d\n", sample, (int)cycles);
}

static void run_samples(const struct deeploy_network *net) {
    void **const inputs = sdk_allocate((uint32_t)net->input_count * sizeof *inputs);
    void **const outputs = sdk_allocate((uint32_t)net->output_count * sizeof *outputs);
    const uint32_t bytes = allocate_tensors(inputs, net->inputs, net->input_count, sdk_allocate);
    allocate_tensors(outputs, net->outputs, net->output_count, sdk_allocate);
    if (net->init(0, 0) != DEEPLOY_OK) sdk_fail("init failed");

    pi_fs_file_t *const in = bytes ? open_file("inputs.bin", PI_FS_FLAGS_READ) : 0;
    pi_fs_file_t *const out = open_file("outputs.bin", PI_FS_FLAGS_WRITE);
    int sample = 0;
    for (; bytes ? read_sample(in, inputs, net->inputs, net->input_count) : !sample; sample++) {
        run_sample(net, inputs, outputs, sample);
        for (int i = 0; i < net->output_count; i++) {
            const int32_t n = (int32_t)net->outputs[i].bytes;
            if (pi_fs_write(out, outputs[i], (uint32_t)n) != n) sdk_fail("cannot write outputs.bin");
        }
    }
    if (!sample) sdk_fail("inputs.bin holds no whole number of samples");
    pi_fs_close(out);
}

static void run_all(void) {
    static struct pi_hostfs_conf conf;
    pi_hostfs_conf_init(&conf);
    pi_open_from_conf(&files, &conf);
    if (pi_fs_mount(&files)) sdk_fail("the host file system cannot be mounted");
    sdk_set_up();
    load_constants();
    run_samples(deeploy_networks[0]);
    for (int core = 0; core < rt_machine.cores; core++) {
        if (cluster_stack_used(core) == cluster_stack_bytes(core))
            sdk_fail("a core's stack is full: the target must reserve more of L1");
        printf("stack %d %d %d\n", core, (int)cluster_stack_used(core), (int)cluster_stack_bytes(core));
    }
    pmsis_exit(0);
}

int main(void) {
    return pmsis_kickoff((void *)run_all);
}
