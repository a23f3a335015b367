/* A chip as a library of its own, with its own static state, and the program that loads it. */
#ifndef DEEPLOY_CHIP_H
#define DEEPLOY_CHIP_H

#include <stdint.h>

enum {
    CHIP_LOST = 71, /* the status of a program one of whose chips waits for another that is gone */
    CHIP_TEXT = 240
};

/* What carries messages; `context` is the loading program's. Neither function returns when the peer is gone. */
struct chip_transport {
    void *context;
    void (*send)(void *context, int peer, int tag, const void *from, uint32_t bytes);
    void (*recv)(void *context, int peer, int tag, void *to, uint32_t bytes);
};

/* What a library exports: says which chip it is and how it reaches the others, then runs the application of its
 * runtime. */
typedef void chip_connect_function(int chip, const struct chip_transport *transport);
typedef int chip_main_function(int argc, char **argv);

void chip_connect(int chip, const struct chip_transport *transport);
int chip_main(int argc, char **argv);

#endif
