/* The constants of the far memory, as they are. */
    .section .rodata.deeploy_constants, "a"
    .balign 16
    .global deeploy_constants
deeploy_constants:
#ifdef CONSTANTS
    .incbin CONSTANTS
#endif
