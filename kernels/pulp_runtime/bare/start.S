/* Where the controller and the cores of the cluster begin: a stack each, then C. */
    .section .text.start, "ax"
    .globl _start
/* The controller, from the loader. The vectors that a trap would use lie at the multiple of 256 below the boot address,
 * which is here too: this runtime enables no interrupt, so whatever arrives there is an error. */
_start:
    j controller
    .rept 34
    .balign 4
    .option push
    .option norvc
    j trap
    .option pop
    .endr

controller:
    .option push
    .option norelax
    la gp, __global_pointer$
    .option pop
    la sp, __controller_stack_top
    la t0, __bss_begin
    la t1, __bss_end
    call clear
    la t0, __l1_shared_begin
    la t1, __l1_shared_end
    call clear
    call controller_main
    call bare_end

/* Zero from t0 to t1. */
clear:
1:  bgeu t0, t1, 2f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 1b
2:  ret

    .globl cluster_start
    .balign 256
/* A core of the cluster, when the controller lets it fetch. */
cluster_start:
    j core
    .rept 34
    .balign 4
    .option push
    .option norvc
    j trap
    .option pop
    .endr

core:
    .option push
    .option norelax
    la gp, __global_pointer$
    .option pop
    csrr a0, mhartid
    andi a0, a0, 31
    beqz a0, 1f
    la sp, __core_stack_bottom
    la t0, __core_stack_bytes
    mul t0, t0, a0
    add sp, sp, t0
    call cluster_worker
1:  la sp, __core_0_stack_top
    call cluster_master
2:  j 2b

trap:
    csrr a0, mcause
    csrr a1, mepc
    call bare_trap
3:  j 3b
