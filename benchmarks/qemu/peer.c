/* Runs a network that another tool made, with every sample of `inputs.bin`: writes results to `outputs.bin`, and to `figures.bin` the
 * bytes of memory that it takes beside its variables, and those by which it lowers the stack. ENTRY is the function of generated C;
 * without it, another file has peer_begin and peer_run. With EMPTY nothing is called: what is linked then is this program alone. */
#include "program.h"
#include "semihost.h"

enum { PAINT = 0xA5, OWN = 64 };

extern unsigned char __heap_start[];
static _Alignas(16) unsigned char x[INPUT_BYTES], y[OUTPUT_BYTES];

uint32_t peer_begin(void);
void peer_run(const void *input, void *output);

void program_fail(const char *what) {
    semihost_print("error: ");
    semihost_print(what);
    semihost_print("\n");
    semihost_exit(1);
}

#ifdef EMPTY
uint32_t peer_begin(void) {
    return 0;
}
void peer_run(const void *input, void *output) {
    (void)input, (void)output;
}
#elif defined(ENTRY)
void ENTRY(); /* its parameters are arrays whose extents its own declaration has */
uint32_t peer_begin(void) {
    return 0;
}
void peer_run(const void *input, void *output) {
    ENTRY(input, output);
}
#endif

__attribute__((noinline)) static void network_run(void) {
    peer_run(x, y);
}

/* Everything between the variables and this function's own frame. */
__attribute__((noinline)) static void paint(unsigned char *end) {
    for (volatile unsigned char *byte = __heap_start; byte < end; byte++) *byte = PAINT;
}

int main(void) {
    unsigned char here;
    unsigned char *const end = &here - OWN;
    uint32_t figures[2] = {peer_begin(), 0};
    const int from = semihost_open("inputs.bin", SEMIHOST_READ), to = semihost_open("outputs.bin", SEMIHOST_WRITE);
    paint(end);
    for (int32_t left = semihost_length(from) / INPUT_BYTES; left > 0; left--) {
        if (semihost_read(from, x, sizeof x)) program_fail("inputs.bin is too short");
        network_run();
        if (semihost_write(to, y, sizeof y)) program_fail("outputs.bin cannot be written");
    }
    const unsigned char *lowest = __heap_start;
    while (lowest < end && *lowest == PAINT) lowest++;
    figures[1] = (uint32_t)(end - lowest);
    semihost_close(to);
    const int file = semihost_open("figures.bin", SEMIHOST_WRITE);
    if (semihost_write(file, figures, sizeof figures)) program_fail("figures.bin cannot be written");
    semihost_close(file);
    semihost_exit(0);
}
