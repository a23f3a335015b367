/* The first UART of Arm's MPS2 boards: "CMSDK APB UART" (Cortex-M System Design Kit, Technical Reference Manual, 4.3).
 */
#include "patience.h"

struct uart {
    volatile uint32_t data, state, control, interrupt, divider;
};
#define UART ((struct uart *)UART_BASE)
enum { SEND_FULL = 1, RECEIVED = 2, SEND = 1, RECEIVE = 2 };

const uint32_t board_hertz = 25000000;

void board_begin(void) {
    UART->divider = 25000000 / BOARD_BAUD;
    UART->control = SEND | RECEIVE;
}

int board_get(void) {
    const uint64_t since = board_clock();
    while (!(UART->state & RECEIVED)) wait_since(since);
    return (int)(UART->data & 0xFF);
}

void board_put(int byte) {
    while (UART->state & SEND_FULL) continue;
    UART->data = (uint32_t)byte;
}
