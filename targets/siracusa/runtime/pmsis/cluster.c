/* The cluster: opened with all its cores, runs one task at a time. Stacks lie in L1; their size can be configured. */
#include "pmsis.h"
#include "sdk.h"

/* The lowest word of every stack holds a marker that shows at the end whether the stack overflowed. */
enum { PAINT = 0x5AFEC0DE, CORES = 8, STACKS_LEAST = 4096 };

static struct pi_device cluster;

static uint32_t *stacks; /* core 0's, then those of the other cores in order */
static uint32_t stack_bytes, master_bytes;

/* Cores of the fork that is running; only core 0 writes it, while the others wait. */
static PI_CL_L1 int team_cores = 1;

struct job {
    int (*entry)(void *);
    void *argument;
    int result;
};

void cluster_open(void) {
    struct pi_cluster_conf conf;
    pi_cluster_conf_init(&conf);
    conf.id = 0;
    pi_open_from_conf(&cluster, &conf);
    if (pi_cluster_open(&cluster)) sdk_fail("the cluster cannot be opened");
    if ((int)pi_cl_cluster_nb_pe_cores() < rt_machine.cores || rt_machine.cores > CORES)
        sdk_fail("the machine has more cores than the cluster");
    pi_perf_cl_reset();
    pi_perf_cl_start();
}

void *cluster_allocate(uint32_t bytes) {
    return pi_cl_l1_malloc(&cluster, bytes);
}

void cluster_make_stacks(void) {
    uint32_t bytes = L1_RESERVED_BYTES;
    while (bytes >= STACKS_LEAST && !(stacks = cluster_allocate(bytes))) bytes -= 64;
    if (!stacks) sdk_fail("the reserved part of L1 leaves no room for stacks");
    /* The same for each core, and a little more for core 0, which runs the tile loops above the kernels. */
    stack_bytes = (bytes - 128) / CORES & ~15u;
    master_bytes = bytes - (CORES - 1) * stack_bytes;
    for (uint32_t i = 0; i < bytes / 4; i++) stacks[i] = PAINT;
}

static const uint32_t *stack_bottom(int core) {
    return core ? stacks + (master_bytes + (uint32_t)(core - 1) * stack_bytes) / 4 : stacks;
}

uint32_t cluster_stack_bytes(int core) {
    return core ? stack_bytes : master_bytes;
}

uint32_t cluster_stack_used(int core) {
    const uint32_t *const bottom = stack_bottom(core);
    const uint32_t bytes = cluster_stack_bytes(core);
    uint32_t unused = 0;
    while (unused < bytes && bottom[unused / 4] == PAINT) unused += 4;
    return bytes - unused;
}

static void work(void *argument) {
    struct job *const job = argument;
    job->result = job->entry(job->argument);
    order_memory();
}

int rt_enter(int (*entry)(void *), void *argument) {
    struct job job = {entry, argument, 0};
    struct pi_cluster_task task;
    pi_cluster_task(&task, work, &job);
    task.nb_cores = CORES;
    task.stacks = stacks;
    task.stack_size = master_bytes;
    task.slave_stack_size = stack_bytes;
    order_memory();
    if (pi_cluster_send_task_to_cl(&cluster, &task)) sdk_fail("the cluster takes no task");
    order_memory();
    return job.result;
}

void rt_fork(int cores, void (*body)(void *), void *argument) {
    order_memory();
    if (cores > 1) {
        team_cores = cores;
        pi_cl_team_fork(cores, body, argument);
        team_cores = 1;
    } else {
        body(argument);
    }
    order_memory();
}

int rt_core(void) {
    return (int)pi_core_id();
}

void rt_barrier(void) {
    order_memory();
    if (team_cores > 1) pi_cl_team_barrier();
    order_memory();
}

uint32_t rt_cycles(void) {
    return pi_perf_cl_read(PI_PERF_CYCLES);
}
