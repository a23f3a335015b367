/* From reset to main: stack, floating point where there is any, variables. */
#include <string.h>

#include "program.h"

extern unsigned char __data_load[], __data_start[], __data_end[], __bss_start[], __bss_end[], __stack_top[];
int main(void);

__attribute__((used)) static void begin(void) {
    memcpy(__data_start, __data_load, (size_t)(__data_end - __data_start));
    memset(__bss_start, 0, (size_t)(__bss_end - __bss_start));
    main();
}

__attribute__((used)) static void trap(void) {
    program_fail("the processor met an exception");
}

#if defined(__riscv)
_Alignas(16) unsigned char machine_thread[256]; /* what picolibc keeps per thread, errno, lies where tp points */

void _start(void);
__attribute__((naked, noreturn, section(".start"))) void _start(void) {
    __asm__(
        ".option push\n"
        ".option norelax\n"
        "la gp, __global_pointer$\n"
        ".option pop\n"
        "la sp, __stack_top\n"
        "la tp, machine_thread\n"
        "la t0, 1f\n"
        "csrw mtvec, t0\n"
#ifdef __riscv_flen
        "li t0, 0x6600\n" /* floating point and vectors on: FS and VS of mstatus */
        "csrs mstatus, t0\n"
#endif
        "j begin\n"
        ".balign 4\n"
        "1: j trap\n");
}
#else
#define COPROCESSORS (*(volatile uint32_t *)0xE000ED88) /* CPACR, Armv7-M Architecture Reference Manual, B3.2.20 */

void reset(void);
__attribute__((used)) void reset(void) {
    COPROCESSORS |= 0xFu << 20;
    __asm__ volatile("dsb\nisb" ::: "memory");
    begin();
}

void system_timer(void); /* of programs that use the timer of the processor */
__attribute__((weak)) void system_timer(void) {
    trap();
}

__attribute__((used, section(".start"))) static const struct {
    unsigned char *stack;
    void (*handler[15])(void); /* of the exceptions 1 to 15 */
} vectors = {__stack_top, {reset, trap, trap, trap, trap, trap, [14] = system_timer}};
#endif
