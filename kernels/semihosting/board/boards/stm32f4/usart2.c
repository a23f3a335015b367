/* STM32F405 to F446 with USART2 on PA2 and PA3, the serial line of Nucleo-64 boards, at the 16 MHz that these start
 * with (reference manual RM0090: 7.3 clocks, 8.4 pins, 30.6 USART). */
#include "board.h"

#define CLOCKS(offset) (*(volatile uint32_t *)(0x40023800 + (offset)))
#define PINS(offset) (*(volatile uint32_t *)(0x40020000 + (offset)))
enum { ENABLE_PINS = 0x30, ENABLE_USART = 0x40, MODE = 0x00, FUNCTION = 0x20 };

struct usart {
    volatile uint32_t state, data, divider, control;
};
#define USART ((struct usart *)0x40004400)
enum { RECEIVED = 1 << 5, SEND_EMPTY = 1 << 7, ON = 1 << 13, SEND = 1 << 3, RECEIVE = 1 << 2 };

const uint32_t board_hertz = 16000000;

void board_begin(void) {
    CLOCKS(ENABLE_PINS) |= 1u << 0;
    CLOCKS(ENABLE_USART) |= 1u << 17;
    PINS(MODE) = (PINS(MODE) & ~0xF0u) | 0xA0u;             /* PA2 and PA3: another function, */
    PINS(FUNCTION) = (PINS(FUNCTION) & ~0xFF00u) | 0x7700u; /* number 7 */
    USART->divider = (16000000 + BOARD_BAUD / 2) / BOARD_BAUD;
    USART->control = ON | SEND | RECEIVE;
}

int board_get(void) {
    while (!(USART->state & RECEIVED)) continue;
    return (int)(USART->data & 0xFF);
}

void board_put(int byte) {
    while (!(USART->state & SEND_EMPTY)) continue;
    USART->data = (uint32_t)byte;
}
