<% P = name.upper() %>\
/* Runs network ${name} once, on inputs that are all zero, and prints the first values of its first output, in thousandths.
% if is_tested:
 * Then it runs the self-test that was compiled in; -DDEEPLOY_NO_SELF_TEST leaves it out.
% endif
 */
#include "${headers[0]}"
#include "deeploy_values.h"

#if defined(BOARD) /* a serial line */
#include "board.h"
#include "program.h"
static void put(char byte) {
    board_put(byte);
}
#elif defined(SEMIHOSTING) /* QEMU, or a debugger */
#include "program.h"
#include "semihost.h"
static void put(char byte) {
    const char text[] = {byte, 0};
    semihost_print(text);
}
#else
#include <stdio.h>
static void put(char byte) {
    putchar(byte);
}
#endif

/* Working memory: static, so that the linker knows about it. One byte more, since a network may need none. */
static _Alignas(${P}_ARENA_ALIGNMENT) unsigned char arena[${P}_ARENA_BYTES + 1];
% for kind, side in (("INPUT", "inputs"), ("OUTPUT", "outputs")):
% for number, port in enumerate(ports[side]):
static ${P}_${kind}_${number}_TYPE ${kind.lower()}${number}[${max(1, port["elements"])}]; /* ${port["about"]} */
% endfor
% endfor

static void print(const char *text) {
    while (*text) put(*text++);
}

static void print_number(long number) {
    if (number < 0) put('-');
    if (number < 0) number = -number;
    if (number >= 10) print_number(number / 10);
    put((char)('0' + number % 10));
}

static int infer(void) {
    const void *const inputs[] = {${", ".join(f"input{number}" for number in range(len(ports["inputs"]))) or "0"}};
    void *const outputs[] = {${", ".join(f"output{number}" for number in range(len(ports["outputs"]))) or "0"}};
    if (${name}_init(arena, ${P}_ARENA_BYTES) != DEEPLOY_OK) return 1;
    if (${name}_run(inputs, outputs) != DEEPLOY_OK) return 1;
    print("${name}:");
    for (size_t i = 0; i < ${P}_OUTPUT_0_ELEMENTS && i < 10; i++) {
        put(' ');
        print_number((long)(1000 * deeploy_value(&${name}_outputs[0], output0, i)));
    }
    print("\n");
    return 0;
}
% if is_tested:

#ifndef DEEPLOY_NO_SELF_TEST
static int put_byte(int byte) {
    put((char)byte);
    return byte;
}

#ifdef BOARD
static uint32_t cycles(void) {
    return (uint32_t)board_clock();
}
#else
#define cycles 0
#endif

/* A line for every layer, which deeploy compare reads; how many results differ. */
static int test(void) {
#ifdef BOARD
    board_start_clock();
#endif
    return ${name}_test(put_byte, cycles);
}
#else
static int test(void) {
    return 0;
}
#endif
% endif

#if defined(BOARD) || defined(SEMIHOSTING)
_Noreturn void program_fail(const char *what) { /* start.c calls it where the processor meets an exception */
    print(what);
    print("\n");
#ifdef SEMIHOSTING
    semihost_exit(1);
#else
    for (;;) continue;
#endif
}
#endif

int main(void) {
#ifdef BOARD
    board_begin();
#endif
    const int status = infer()${" || test()" if is_tested else ""};
#if defined(SEMIHOSTING)
    semihost_exit(status);
#elif defined(BOARD)
    if (status) program_fail("the inference${" or its self-test" if is_tested else ""} failed");
    for (;;) continue;
#else
    return status;
#endif
}
