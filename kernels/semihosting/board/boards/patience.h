/* An emulator that waits for bytes keeps a core of its machine busy: it ends when none came for a while. */
#include "board.h"
#include "semihost.h"

enum { PATIENCE = 30 }; /* seconds */

/* Called while there is no byte; `since` is the clock when the wait began. */
static inline void wait_since(uint64_t since) {
    if ((int64_t)(board_clock() - since) > (int64_t)PATIENCE * board_hertz) semihost_exit(0);
}
