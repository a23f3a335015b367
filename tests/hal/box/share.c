/* Whether two sets of rows share a byte, as the host machine model finds out; for a machine without memories. */
#include "host/flight.c"

const struct rt_machine rt_machine = {.name = "none"};

int rows_share(uint64_t a, uint64_t a_bytes, uint64_t a_rows, uint64_t a_pitch, uint64_t b, uint64_t b_bytes,
               uint64_t b_rows, uint64_t b_pitch) {
    return share((struct rows){a, a_bytes, a_rows, a_pitch}, (struct rows){b, b_bytes, b_rows, b_pitch});
}
