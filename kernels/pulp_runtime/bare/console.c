#include "console.h"

#include "pulp.h"

/* Each hart has a line buffer of its own behind this register. */
static void put(char c) {
    const uint32_t id = hart();
    store(STDOUT + ((id & 31) << 3) + ((id >> 5) << 7), (unsigned char)c);
}

void print_text(const char *text) {
    while (*text) put(*text++);
}

void print_number(int32_t number) {
    char digits[12];
    int i = sizeof digits - 1;
    uint32_t rest = number < 0 ? -(uint32_t)number : (uint32_t)number;
    digits[i] = 0;
    do {
        digits[--i] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0) digits[--i] = '-';
    print_text(digits + i);
}

void bare_exit(int status) {
    store(SOC_CONTROL + 0xA0, 0x80000000u | (uint32_t)(status & 255));
    for (;;) continue;
}

void bare_fail(const char *what) {
    print_text("error: ");
    print_text(what);
    print_text("\n");
    bare_exit(1);
}

void bare_trap(uint32_t cause, uint32_t address) {
    print_text("error: trap ");
    print_number((int32_t)cause);
    print_text(" at ");
    print_number((int32_t)address);
    print_text(" on hart ");
    print_number((int32_t)hart());
    print_text("\n");
    bare_exit(1);
}

/* RISC-V semihosting: the three instructions together, none of them compressed, are the call. */
static int32_t host(int operation, const void *arguments) {
    register int32_t a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = arguments;
    __asm__ volatile(
        ".option push\n"
        ".option norvc\n"
        ".balign 16\n"
        "slli x0, x0, 0x1f\n"
        "ebreak\n"
        "srai x0, x0, 7\n"
        ".option pop\n"
        : "+r"(a0)
        : "r"(a1)
        : "memory");
    return a0;
}

enum { HOST_OPEN = 1, HOST_CLOSE = 2, HOST_WRITE = 5, HOST_READ = 6, HOST_LENGTH = 12 };
enum { MODE_READ = 1, MODE_WRITE = 5 }; /* "rb", "wb" */

int file_open(const char *path, int is_output) {
    uint32_t length = 0;
    while (path[length]) length++;
    const uint32_t arguments[3] = {(uint32_t)path, is_output ? MODE_WRITE : MODE_READ, length};
    return (int)host(HOST_OPEN, arguments);
}

/* The simulator takes the handle of these two from the register, not from an array of arguments. */
void file_close(int file) {
    (void)host(HOST_CLOSE, (const void *)file);
}

int32_t file_bytes(int file) {
    return host(HOST_LENGTH, (const void *)file);
}

int file_read(int file, void *memory, uint32_t bytes) {
    const uint32_t arguments[3] = {(uint32_t)file, (uint32_t)memory, bytes};
    return host(HOST_READ, arguments) != 0;
}

int file_write(int file, const void *memory, uint32_t bytes) {
    const uint32_t arguments[3] = {(uint32_t)file, (uint32_t)memory, bytes};
    return host(HOST_WRITE, arguments) != 0;
}
