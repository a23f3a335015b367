/* Runs the project's first network on a 32-bit RISC-V under QEMU's user mode, with no C library around it but string.h
 * and math.h: samples come in on standard input, all inputs one after the other as raw bytes, outputs leave in the same
 * way. Ends with 0, or with 1 for a partial sample, 2 for too little memory, 3 for a network that fails, 4 when the
 * system does.
 */
#include "deeploy_network.h"

enum { READ = 63, WRITE = 64, EXIT = 93, POOL_BYTES = 8 << 20 };

static _Alignas(64) unsigned char pool[POOL_BYTES];
static size_t used;

/* What picolibc's math functions keep per thread, errno, lies where tp points. */
_Alignas(16) unsigned char rv32_thread[256];

static long ask(long number, long a, const void *b, size_t c) {
    register long a7 __asm__("a7") = number, a0 __asm__("a0") = a;
    register const void *a1 __asm__("a1") = b;
    register size_t a2 __asm__("a2") = c;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory");
    return a0;
}

static void leave(int status) {
    for (;;) ask(EXIT, status, 0, 0);
}

/* All bytes of a tensor; returns how many there were. */
static size_t transfer(long call, int file, unsigned char *bytes, size_t count) {
    size_t done = 0;
    while (done < count) {
        const long n = ask(call, file, bytes + done, count - done);
        if (n < 0) leave(4);
        if (!n) break;
        done += (size_t)n;
    }
    return done;
}

static void *allocate(size_t bytes) {
    unsigned char *const result = pool + used;
    used += (bytes + 63) / 64 * 64;
    if (used > POOL_BYTES) leave(2);
    return result;
}

static void **allocate_all(const struct deeploy_tensor *tensors, int count) {
    void **const arrays = allocate((size_t)(count + 1) * sizeof(void *));
    for (int i = 0; i < count; i++) arrays[i] = allocate(tensors[i].bytes);
    return arrays;
}

__attribute__((used)) static void begin(void) {
    const struct deeploy_network *const net = deeploy_networks[0];
    void **const inputs = allocate_all(net->inputs, net->input_count);
    void **const outputs = allocate_all(net->outputs, net->output_count);
    if (net->init(allocate(net->arena_bytes), net->arena_bytes) != DEEPLOY_OK) leave(3);
    for (;;) {
        for (int i = 0; i < net->input_count; i++) {
            const size_t n = transfer(READ, 0, inputs[i], net->inputs[i].bytes);
            if (!n && !i) leave(0);
            if (n != net->inputs[i].bytes) leave(1);
        }
        if (net->run((const void *const *)inputs, outputs) != DEEPLOY_OK) leave(3);
        for (int i = 0; i < net->output_count; i++) transfer(WRITE, 1, outputs[i], net->outputs[i].bytes);
    }
}

/* Addresses relative to gp are the linker's choice, so gp has to be there first; the stack is the system's. */
__attribute__((naked, noreturn)) void _start(void) {
    __asm__(
        ".option push\n"
        ".option norelax\n"
        "la gp, __global_pointer$\n"
        ".option pop\n"
        "la tp, rv32_thread\n"
        "j begin\n");
}
