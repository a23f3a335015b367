#include "semihost.h"

#include <string.h>

enum {
    OPEN = 0x01,
    CLOSE = 0x02,
    PRINT = 0x04,
    WRITE = 0x05,
    READ = 0x06,
    LENGTH = 0x0C,
    LEAVE = 0x20,
    EXITED = 0x20026
};

static int32_t ask(uint32_t operation, const void *argument) {
#if defined(__riscv)
    register uint32_t a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = argument;
    /* The emulator knows the request by the three uncompressed instructions, which lie in one page. */
    __asm__ volatile(
        ".balign 16\n"
        ".option push\n"
        ".option norvc\n"
        "slli x0, x0, 0x1f\n"
        "ebreak\n"
        "srai x0, x0, 7\n"
        ".option pop\n"
        : "+r"(a0)
        : "r"(a1)
        : "memory");
    return (int32_t)a0;
#else
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return (int32_t)r0;
#endif
}

int semihost_open(const char *name, int mode) {
    const uint32_t arguments[] = {(uint32_t)(uintptr_t)name, (uint32_t)mode, strlen(name)};
    return ask(OPEN, arguments);
}

void semihost_close(int file) {
    const uint32_t arguments[] = {(uint32_t)file};
    ask(CLOSE, arguments);
}

int32_t semihost_length(int file) {
    const uint32_t arguments[] = {(uint32_t)file};
    return ask(LENGTH, arguments);
}

int semihost_read(int file, void *bytes, uint32_t count) {
    const uint32_t arguments[] = {(uint32_t)file, (uint32_t)(uintptr_t)bytes, count};
    return ask(READ, arguments) != 0;
}

int semihost_write(int file, const void *bytes, uint32_t count) {
    const uint32_t arguments[] = {(uint32_t)file, (uint32_t)(uintptr_t)bytes, count};
    return ask(WRITE, arguments) != 0;
}

void semihost_print(const char *text) {
    ask(PRINT, text);
}

void semihost_exit(int status) {
    const uint32_t arguments[] = {EXITED, (uint32_t)status};
    for (;;) ask(LEAVE, arguments);
}
