/* Products of four bytes of x with four of w: the instruction for their signs, and what loops of assembly are written
 * with. Needs X_T and W_T: bytes, of one sign or x unsigned and w signed; and IS_PACKED, whether elements of w have
 * fewer bits, which are signed bytes once they are unpacked.
 */
#ifndef DEEPLOY_PULP_DOTS_H
#define DEEPLOY_PULP_DOTS_H

#include "xpulp.h"

enum { SDOT = !IS_PACKED && (W_T)-1 > 0 ? XP_SDOTUP : (X_T)-1 > 0 ? XP_SDOTUSP : XP_SDOTSP };

static inline int32_t dot4(uint32_t x, uint32_t w, int32_t acc) {
    return (int)SDOT == XP_SDOTUP    ? xp_sdotup(x, w, acc)
           : (int)SDOT == XP_SDOTUSP ? xp_sdotusp(x, w, acc)
                                     : xp_sdotsp(x, w, acc);
}

/* The operand `sdot` may have flags above the instruction. */
#define WALK(to, from, step) ".insn r 0x0b, 7, 0x10, " to ", %[" from "], " step "\n"
#define DOT(acc, x, w) ".insn r 0x57, 1, %[sdot] & 127, %[" acc "], " x ", " w "\n"

#endif
