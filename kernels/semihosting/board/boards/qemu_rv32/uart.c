/* The UART of QEMU's RISC-V board `virt`, which is a 16550. */
#include "patience.h"

#define UART ((volatile uint8_t *)0x10000000)
enum { DATA = 0, STATE = 5, RECEIVED = 0x01, SEND_EMPTY = 0x20 };

const uint32_t board_hertz = 1000000000; /* an emulator counts nanoseconds */

void board_begin(void) {}

int board_get(void) {
    const uint64_t since = board_clock();
    while (!(UART[STATE] & RECEIVED)) wait_since(since);
    return UART[DATA];
}

void board_put(int byte) {
    while (!(UART[STATE] & SEND_EMPTY)) continue;
    UART[DATA] = (uint8_t)byte;
}
