/* Constants of network ${prefix}, in the layouts that its kernels read. */
#include "${prefix}_weights.h"

% if not embedded:
#include <math.h>

% endif
#ifdef DEEPLOY_BINARY_WEIGHTS
const unsigned char *${prefix}_weights;
#else
% if embedded:
/* They lie in ${prefix}_weights.bin, beside the folder of the headers, which the assembler finds by its path (-I).
 * SHA-256 ${embedded}
 */
#ifdef DEEPLOY_CONSTANTS
#error "Constants of this size have no attributes: define DEEPLOY_CONSTANTS_SECTION, a string, instead of DEEPLOY_CONSTANTS."
#endif
#ifndef DEEPLOY_CONSTANTS_SECTION
#ifdef __APPLE__
#define DEEPLOY_CONSTANTS_SECTION "__TEXT,__const"
#else
#define DEEPLOY_CONSTANTS_SECTION ".rodata"
#endif
#endif
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define SYMBOL(name) TEXT(__USER_LABEL_PREFIX__) #name
#define CONSTANT(name, offset, bytes)                                              ${"\\"}
    __asm__(".section " DEEPLOY_CONSTANTS_SECTION "\n"                              ${"\\"}
            ".balign 16\n"                                                         ${"\\"}
            ".globl " SYMBOL(name) "\n" SYMBOL(name) ":\n"                          ${"\\"}
            ".incbin \"../${prefix}_weights.bin\", " #offset ", " #bytes "\n"       ${"\\"}
            ".previous\n")

% for k in constants:
CONSTANT(${k.name}, ${k.offset}, ${k.buffer.bytes});
% endfor
% else:
#ifndef DEEPLOY_CONSTANTS
#define DEEPLOY_CONSTANTS
#endif
% for k in constants:
DEEPLOY_CONSTANTS const ${k.type} ${k.name}[${k.elements}] = {
${k.values}
};
% endfor
% endif
#endif
