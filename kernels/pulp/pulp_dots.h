/* Products of four bytes of x with four of w: the instruction for their signs, and what loops of assembly are written
 * with. Needs X_T and W_T: bytes, of one sign or x unsigned and w signed. Where W_BITS is defined, elements of w have
 * as many bits.
 */
#ifndef DEEPLOY_PULP_DOTS_H
#define DEEPLOY_PULP_DOTS_H

#include "xpulp.h"

#ifdef W_BITS /* unpacked, they are signed bytes */
enum { SDOT = (X_T)-1 > 0 ? XP_SDOTUSP : XP_SDOTSP };
#else
enum { SDOT = (W_T)-1 > 0 ? XP_SDOTUP : (X_T)-1 > 0 ? XP_SDOTUSP : XP_SDOTSP };
#endif

static inline int32_t dot4(uint32_t x, uint32_t w, int32_t acc) {
    return SDOT == XP_SDOTUP ? xp_sdotup(x, w, acc) : SDOT == XP_SDOTUSP ? xp_sdotusp(x, w, acc) : xp_sdotsp(x, w, acc);
}

#define BEGIN ".option push\n.option norvc\n"
#define LOOP(count, instructions) ".insn i 0x7b, 4, x0, " count ", " #instructions "*2\n"
#define LOAD(to, from) ".insn i 0x0b, 2, " to ", %[" from "], 4\n"
#define WALK(to, from, step) ".insn r 0x0b, 7, 0x10, " to ", %[" from "], " step "\n"
#define DOT(acc, x, w) ".insn r 0x57, 1, %[sdot], %[" acc "], " x ", " w "\n"
#define END ".option pop\n"

#endif
