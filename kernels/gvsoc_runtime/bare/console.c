#include "console.h"

void print_text(const char *text) {
    while (*text) bare_put(*text++);
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

void bare_fail(const char *what) {
    print_text("error: ");
    print_text(what);
    print_text("\n");
    bare_exit(1);
}

void bare_trap(uint32_t cause, uint32_t address) {
    uint32_t hart;
    __asm__ volatile("csrr %0, mhartid" : "=r"(hart));
    print_text("error: trap ");
    print_number((int32_t)cause);
    print_text(" at ");
    print_number((int32_t)address);
    print_text(" on hart ");
    print_number((int32_t)hart);
    print_text("\n");
    bare_exit(1);
}

/* RISC-V semihosting: the three instructions together, none of them compressed, are the call. */
int32_t bare_host(int operation, const void *arguments) {
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
    return (int)bare_host(HOST_OPEN, arguments);
}

/* The simulator takes the handle of these two from the register, not from an array of arguments. */
void file_close(int file) {
    (void)bare_host(HOST_CLOSE, (const void *)file);
}

int32_t file_bytes(int file) {
    return bare_host(HOST_LENGTH, (const void *)file);
}

int file_read(int file, void *memory, uint32_t bytes) {
    const uint32_t arguments[3] = {(uint32_t)file, (uint32_t)memory, bytes};
    return bare_host(HOST_READ, arguments) != 0;
}

int file_write(int file, const void *memory, uint32_t bytes) {
    const uint32_t arguments[3] = {(uint32_t)file, (uint32_t)memory, bytes};
    return bare_host(HOST_WRITE, arguments) != 0;
}
