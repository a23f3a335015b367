/* Characters and the end of a simulation, by semihosting. */
#include "console.h"

enum { HOST_PRINT = 0x04, HOST_LEAVE = 0x18, LEFT_WELL = 0x20026 };

void bare_put(char c) {
    const char text[2] = {c, 0};
    (void)bare_host(HOST_PRINT, text);
}

void bare_exit(int status) {
    const uintptr_t why = status ? 0 : LEFT_WELL;
    for (;;) (void)bare_host(HOST_LEAVE, (const void *)why);
}
