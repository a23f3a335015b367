/* What a board gives to programs that talk over its serial line. Its folder has a board.mk and these functions, but
 * that clock.c counts cycles on all Cortex-M and on RISC-V cores with `mcycle`; a board with a better clock defines its
 * own. */
#ifndef DEEPLOY_BOARD_H
#define DEEPLOY_BOARD_H

#include <stdint.h>

extern const uint32_t board_hertz; /* of the clock that is counted */

void board_begin(void); /* called first: clocks, pins, and the serial line with 8 bits, no parity and one stop bit */
int board_get(void);    /* waits for a byte of the line */
void board_put(int byte);
void board_start_clock(void);
uint64_t board_clock(void); /* cycles since the clock was started */

#endif
