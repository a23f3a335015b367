/* Where every core begins, from the boot ROM: floating point, a stack, then C. */
    .section .text.start, "ax"
    .globl _start
_start:
    .option push
    .option norelax
    la gp, __global_pointer$
    .option pop
    la t0, trap
    csrw mtvec, t0
    li t0, 0x6000
    csrs mstatus, t0
    csrr a0, mhartid
    beqz a0, 1f
    la sp, __core_stack_bottom
    la t0, __core_stack_bytes
    mul t0, t0, a0
    add sp, sp, t0
    csrr zero, 0x7C2 /* the barrier of all cores: until core 0 has cleared what they share */
    li t0, 8
    csrr a0, mhartid
    beq a0, t0, 2f
    call cluster_worker
2:  call cluster_mover

1:  la sp, __core_0_stack_top
    la t0, __bss_begin
    la t1, __bss_end
    call clear
    la t0, __l1_shared_begin
    la t1, __l1_shared_end
    call clear
    csrr zero, 0x7C2
    call controller_main
    call bare_end

/* Zero from t0 to t1. */
clear:
1:  bgeu t0, t1, 2f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 1b
2:  ret

    .balign 4
trap:
    csrr a0, mcause
    csrr a1, mepc
    call bare_trap
3:  j 3b
