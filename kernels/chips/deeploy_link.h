/* Interface between generated code and the links between chips. Messages from one sender to one receiver arrive in the
 * order in which they were sent. */
#ifndef DEEPLOY_LINK_H
#define DEEPLOY_LINK_H

#include <stdint.h>

/* Hands a message to the link and returns; the array may then be overwritten. Blocks while the link's queue of messages
 * to this peer is full. */
void rt_send(int peer, int tag, const void *from, uint32_t bytes);

/* Returns when the message has arrived. */
void rt_recv(int peer, int tag, void *to, uint32_t bytes);

/* The messages of the calling chip's network, in the order of its calls. */
struct deeploy_message {
    int32_t peer, tag;
};

extern const struct deeploy_message deeploy_messages[];

#endif
