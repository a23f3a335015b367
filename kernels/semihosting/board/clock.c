#include "board.h"

#if defined(__riscv)
__attribute__((weak)) void board_start_clock(void) {}

__attribute__((weak)) uint64_t board_clock(void) {
    uint32_t high, low, again;
    do {
        __asm__ volatile("csrr %0, mcycleh\ncsrr %1, mcycle\ncsrr %2, mcycleh" : "=r"(high), "=r"(low), "=r"(again));
    } while (high != again);
    return (uint64_t)high << 32 | low;
}
#else
/* SysTick: 24 bits that count down, and an exception at zero (Armv7-M Architecture Reference Manual, B3.3). */
struct timer {
    volatile uint32_t control, reload, value;
};
#define TIMER ((struct timer *)0xE000E010)
#define PENDING (*(volatile uint32_t *)0xE000ED04) /* ICSR, B3.2.4 */
enum { TURN = 1 << 24, TIMER_PENDS = 1 << 26, ENABLE = 1, EXCEPTION = 2, PROCESSOR = 4 };

static volatile uint32_t turns;

void system_timer(void);
void system_timer(void) {
    turns++;
}

__attribute__((weak)) void board_start_clock(void) {
    TIMER->reload = TURN - 1;
    TIMER->value = 0;
    TIMER->control = ENABLE | EXCEPTION | PROCESSOR;
}

__attribute__((weak)) uint64_t board_clock(void) {
    uint32_t before, left, is_pending;
    do {
        before = turns;
        left = TIMER->value;
        is_pending = PENDING & TIMER_PENDS;
    } while (before != turns);
    if (is_pending && left > TURN / 2) before++; /* it turned before it was read */
    return ((uint64_t)before << 24) + (TURN - 1 - left);
}
#endif
