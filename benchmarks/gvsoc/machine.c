/* What the machine itself costs, in cycles of the cluster, instructions cached: teams, and transfers of many sizes.
 *
 *     fork CORES CYCLES                            a team of an empty body
 *     barrier CORES CYCLES                         two barriers of a team
 *     move ENGINE OUT BYTES ROWS ISSUE CYCLES      until the transfer was started, and until it was waited for
 *     many ENGINE OUT BYTES COUNT CYCLES           transfers one behind the other under one ticket
 *
 * L1_ARENA is how many bytes there are for it, ENGINES how many transfer engines: L2_L1, and L3_L2 where there are two.
 */
#include "bare.h"
#include "console.h"
#include "deeploy_rt.h"

enum { L1, L2, L3 };
enum { DMA, RAM };
enum { REPEATS = 3, CORES = 8 };

static const struct rt_level levels[] = {
    {"L1", L1_ARENA, 8, 0, 0}, {"L2", 1000000, 8, 0, 0}, {"L3", 2000000, 16, 0, 1}};
static const struct rt_engine engines[] = {{"L2_L1", L1, L2, 65535, 65535, 131071, 65535, 1, 0, 8, 16},
                                           {"L3_L2", L2, L3, 32768, 512, 65536, 65535, 1, 0, 8, 8}};
const struct rt_machine rt_machine = {"chip", CORES, ENGINES + 1, ENGINES, levels, engines, 0, 0};

static void empty(void *argument) {
    (void)argument;
}

static void print(const char *what, const uint32_t *numbers, int count) {
    print_text(what);
    for (int i = 0; i < count; i++) {
        print_text(" ");
        print_number((int32_t)numbers[i]);
    }
    print_text("\n");
}

/* Rows lie twice as far apart as they are long. */
static struct rt_transfer transfer(int engine, int is_store, uint32_t bytes, uint32_t rows) {
    const rt_address near = rt_arena(engine == DMA ? L1 : L2), far = rt_arena(engine == DMA ? L2 : L3);
    const uint32_t pitch = rows > 1 ? 2 * bytes : bytes;
    const struct rt_transfer in = {near, far, bytes, rows, bytes, pitch}, out = {far, near, bytes, rows, pitch, bytes};
    return is_store ? out : in;
}

static void measure(int engine, int is_store, uint32_t bytes, uint32_t rows) {
    const struct rt_transfer t = transfer(engine, is_store, bytes, rows);
    uint32_t begin = 0, started = 0, end = 0;
    for (int i = 0; i < REPEATS; i++) {
        begin = rt_cycles();
        rt_start(engine, 0, &t);
        started = rt_cycles();
        rt_wait(engine, 0);
        end = rt_cycles();
    }
    print("move", (const uint32_t[]){(uint32_t)engine, (uint32_t)is_store, bytes, rows, started - begin, end - begin},
          6);
}

static void measure_many(int engine, int is_store, uint32_t bytes, int count) {
    const struct rt_transfer t = transfer(engine, is_store, bytes, 1);
    uint32_t begin = 0, end = 0;
    for (int i = 0; i < REPEATS; i++) {
        begin = rt_cycles();
        for (int j = 0; j < count; j++) rt_start(engine, 0, &t);
        rt_wait(engine, 0);
        end = rt_cycles();
    }
    print("many", (const uint32_t[]){(uint32_t)engine, (uint32_t)is_store, bytes, (uint32_t)count, end - begin}, 5);
}

static uint32_t meeting;

/* What the barriers before and behind a kernel take. */
static void meet(void *argument) {
    (void)argument;
    for (int i = 0; i < REPEATS; i++) {
        const uint32_t begin = rt_cycles();
        rt_barrier();
        rt_barrier();
        const uint32_t cycles = rt_cycles() - begin;
        if (!rt_core()) meeting = cycles;
    }
}

static int on_cluster(void *argument) {
    (void)argument;
    for (int cores = 1; cores <= CORES; cores++) {
        uint32_t cycles = 0;
        for (int i = 0; i < REPEATS; i++) {
            const uint32_t begin = rt_cycles();
            rt_fork(cores, empty, 0);
            cycles = rt_cycles() - begin;
        }
        print("fork", (const uint32_t[]){(uint32_t)cores, cycles}, 2);
    }
    rt_fork(CORES, meet, 0);
    print("barrier", (const uint32_t[]){CORES, meeting}, 2);
    static const uint16_t sizes[] = {16, 64, 256, 1024, 4096, 8192, 16384, 32768}, lengths[] = {4, 16, 32, 64, 256},
                          counts[] = {8, 32, 64};
    for (int engine = DMA; engine < ENGINES; engine++) {
        for (int is_store = 0; is_store < 2; is_store++) {
            for (int i = 0; i < 8; i++) measure(engine, is_store, sizes[i], 1);
            for (int i = 0; i < 5; i++) {
                for (int j = 0; j < 3; j++) measure(engine, is_store, lengths[i], counts[j]);
            }
            for (int i = 2; i < 8; i += 2) measure_many(engine, is_store, 256, i);
        }
    }
    return 0;
}

int controller_main(void) {
    bare_set_up();
    return rt_enter(on_cluster, 0);
}
