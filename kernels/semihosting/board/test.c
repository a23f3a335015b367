/* Runs the self-test SELF_TEST, a function of network NETWORK, for every line that a host sends: it prints to the
 * serial line what it finds. */
#include "board.h"
#include "program.h"

#ifndef NETWORK
#define NETWORK 0
#endif

int SELF_TEST(int (*put)(int), uint32_t (*clock)(void));

static int put(int byte) {
    board_put(byte);
    return byte;
}

static uint32_t cycles(void) {
    return (uint32_t)board_clock();
}

_Noreturn void program_fail(const char *what) {
    for (;;) { /* whatever is asked */
        while (*what) board_put(*what++);
        while (board_get() != '\n') continue;
    }
}

int main(void) {
    board_begin();
    board_start_clock();
    program_begin(deeploy_networks[NETWORK]);
    for (;;) {
        while (board_get() != '\n') continue;
        SELF_TEST(put, cycles);
    }
}
