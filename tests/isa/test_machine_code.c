/* Tests the reader of machine code: loops, paths, widths, waits. */
#include "isa/machine_code.h"

#include "support/check_main.h"

/* A product as it should be: the next loads are issued before the multiply-adds, which are in an
 * inner loop. The branch to BB3 jumps over code for the end of k. */
static const char product[] = "BB0:\n"
                              "\tglobal_load_dwordx4 v[0:3], v[4:5], off ; 00\n"
                              "BB1:\n"
                              "\ts_barrier ; 00\n"
                              "\ts_waitcnt vmcnt(0) ; 00\n"
                              "\tds_write2_b64 v1, v[0:1], v[2:3] offset1:4 ; 00\n"
                              "\tv_lshlrev_b64 v[4:5], 2, v[4:5] ; 00\n"
                              "\tglobal_load_dwordx4 v[0:3], v[4:5], off ; 00\n"
                              "\ts_cbranch_scc1 BB3 ; 00\n"
                              "BB2:\n"
                              "\tv_cndmask_b32_e32 v0, 0, v0, vcc ; 00\n"
                              "BB3:\n"
                              "\tds_read_b128 v[8:11], v1 ; 00\n"
                              "\tds_read_b64 v[12:13], v1 ; 00\n"
                              "\ts_waitcnt lgkmcnt(0) ; 00\n"
                              "\tv_fmac_f32_e32 v20, v8, v12 ; 00\n"
                              "\tv_fma_f32 v21, v8, v13, v21 ; 00\n"
                              "\tv_add_nc_u32_e32 v1, 4, v1 ; 00\n"
                              "\ts_cbranch_scc0 BB3 ; 00\n"
                              "BB4:\n"
                              "\ts_cbranch_scc0 BB1 ; 00\n"
                              "BB5:\n"
                              "\tv_mul_f32_e32 v20, s0, v20 ; 00\n"
                              "\tv_mul_f32_e32 v21, s0, v21 ; 00\n"
                              "\tglobal_store_dwordx2 v[6:7], v[20:21], off ; 00\n"
                              "\ts_endpgm ; 00\n";

START_TEST(counts_a_step_of_a_product)
{
    isa_figures f;

    ck_assert(isa_read(product, NULL, 8, &f));
    ck_assert(f.loop);
    ck_assert_equal(f.fma, 8);      /* 2, four times */
    ck_assert_equal(f.valu, 4 + 1); /* one in each of four trips of the inner loop, and the shift */
    ck_assert_equal(f.address, 1);
    ck_assert_equal(f.load.count[4], 1);
    ck_assert_equal(f.lds_read.count[4], 4);
    ck_assert_equal(f.lds_read.count[2], 4);
    ck_assert_equal(f.lds_write.count[4], 1);
    ck_assert_equal(f.lds_clocks, 4 * 8 + 4 * 4 + 8);
    ck_assert_equal(f.waits, 0);
    ck_assert_equal(f.flight, 16);
    ck_assert_equal(f.result.count[2], 1);
    ck_assert_equal(f.result_valu, 1);
}
END_TEST

/* Each instruction dot2 makes two products. One is alone, two are in one dual instruction, and one
 * is in a dual instruction with a move. */
static const char pairs[] =
    "BB0:\n"
    "\tglobal_load_b128 v[0:3], v[4:5], off ; 00\n"
    "\tv_dot2_f32_f16 v8, v0, v1, v8 ; 00\n"
    "\tv_dual_dot2acc_f32_f16 v8, v0, v1 :: v_dual_dot2acc_f32_f16 v9, v2, v3 ; 00\n"
    "\tv_dual_mov_b32 v10, v0 :: v_dual_dot2acc_f32_f16 v9, v2, v3 ; 00\n"
    "\tv_fma_f32 v8, v0, v1, v8 ; 00\n"
    "\ts_waitcnt vmcnt(0) ; 00\n"
    "\ts_cbranch_scc0 BB0 ; 00\n"
    "BB1:\n"
    "\ts_endpgm ; 00\n";

START_TEST(counts_products_of_pairs)
{
    isa_figures f;

    ck_assert(isa_read(pairs, NULL, 0, &f));
    ck_assert_equal(f.pairs, 1 + 2 + 1);
    ck_assert_equal(f.fma, 2 * 4 + 1);
    ck_assert_equal(f.valu, 0);
    ck_assert_equal(f.waits, 0); /* the first product is before the wait */
}
END_TEST

/* Products by matrix units. A wait for a load comes before the first of them. */
static const char matrices[] =
    "BB0:\n"
    "\tglobal_load_b128 v[0:3], v[4:5], off ; 00\n"
    "\ts_waitcnt vmcnt(0) ; 00\n"
    "\tv_wmma_f32_16x16x16_f16 v[8:15], v[0:7], v[16:23], v[8:15] ; 00\n"
    "\tv_wmma_f32_16x16x16_bf16 v[8:15], v[0:7], v[16:23], v[8:15] ; 00\n"
    "\tv_mov_b32_e32 v0, v1 ; 00\n"
    "\ts_cbranch_scc0 BB0 ; 00\n"
    "BB1:\n"
    "\ts_endpgm ; 00\n";

START_TEST(counts_products_of_matrices)
{
    isa_figures f;

    ck_assert(isa_read(matrices, NULL, 0, &f));
    ck_assert_equal(f.matrix, 2);
    ck_assert_equal(f.fma, 2 * 128);
    ck_assert_equal(f.valu, 1);
    ck_assert_equal(f.waits, 1);
}
END_TEST

/* After the main loop, a second loop stores. Before each loop, the program jumps to the condition
 * of the loop. */
static const char rotated[] = "BB0:\n"
                              "\ts_branch BB2 ; 00\n"
                              "BB1:\n"
                              "\tglobal_load_b128 v[0:3], v[4:5], off ; 00\n"
                              "BB2:\n"
                              "\ts_cbranch_scc1 BB1 ; 00\n"
                              "BB3:\n"
                              "\ts_branch BB5 ; 00\n"
                              "BB4:\n"
                              "\tv_mul_f32_e32 v0, v0, v1 ; 00\n"
                              "\tglobal_store_b64 v[4:5], v[0:1], off ; 00\n"
                              "BB5:\n"
                              "\ts_cbranch_scc1 BB4 ; 00\n"
                              "BB6:\n"
                              "\ts_endpgm ; 00\n";

START_TEST(follows_jumps_to_the_condition_of_a_loop)
{
    isa_figures f;

    ck_assert(isa_read(rotated, NULL, 0, &f));
    ck_assert_equal(f.load.count[4], 1);
    ck_assert_equal(f.result.count[2], 1);
    ck_assert_equal(f.result_valu, 0.5);
}
END_TEST

/* The select after the load makes the multiply-adds wait for the load. */
static const char waiting[] = "BB0:\n"
                              "\tbuffer_load_ushort v0, v4, s[0:3], 0 offen ; 00\n"
                              "\tglobal_load_b128 v[0:3], v[4:5], off ; 00\n"
                              "\ts_waitcnt vmcnt(1) ; 00\n"
                              "\tv_cndmask_b32_e32 v0, 0, v0, vcc ; 00\n"
                              "\tv_pk_fma_f16 v20, v8, v12, v20 ; 00\n"
                              "\tv_mul_lo_u32 v1, v2, v3 ; 00\n"
                              "\tv_mad_u64_u32 v[4:5], s4, v2, v3, v[4:5] ; 00\n"
                              "\ts_cbranch_scc0 BB0 ; 00\n"
                              "BB1:\n"
                              "\ts_endpgm ; 00\n";

START_TEST(sees_a_wait_between_load_and_product)
{
    isa_figures f;

    ck_assert(isa_read(waiting, NULL, 0, &f));
    ck_assert_equal(f.waits, 1);
    ck_assert_equal(f.fma, 2);
    ck_assert_equal(f.valu, 3);
    ck_assert_equal(f.address, 1);
    ck_assert_equal(isa_narrowest(&f.load), 2);
    ck_assert_equal(isa_widest(&f.load), 16);
    ck_assert_equal(isa_bytes(&f.load), 18);
    ck_assert_equal(f.flight, 18);
}
END_TEST

/* Without a loop, the complete program counts; the path with the loads is taken. */
static const char straight[] = "BB0:\n"
                               "\ts_cbranch_execz BB2 ; 00\n"
                               "BB1:\n"
                               "\tglobal_load_dword v0, v[4:5], off ; 00\n"
                               "\ts_branch BB3 ; 00\n"
                               "BB2:\n"
                               "\tv_mov_b32_e32 v0, 0 ; 00\n"
                               "BB3:\n"
                               "\tglobal_store_short v[6:7], v0, off ; 00\n"
                               "\ts_endpgm ; 00\n";

START_TEST(reads_a_program_without_a_loop)
{
    isa_figures f;

    ck_assert(isa_read(straight, NULL, 0, &f));
    ck_assert(!f.loop);
    ck_assert_equal(f.load.count[1], 1);
    ck_assert_equal(f.valu, 0);
    ck_assert_equal(isa_widest(&f.store), 2);
}
END_TEST

/* Code for Intel's GPUs. It has instructions for half of the subgroup, uniform loads, registers in
 * scratch memory, a loop with a branch, and a wait before the first multiply-add. */
static const char intel_product[] =
    "(W)     send.ugm (1)              r86     r95    null:0  0x00000000  0x0210C580   {$1}  // "
    "wr:1+0, rd:1; load.ugm.d32x8t.a64\n"
    "L6:\n"
    "(f0.0)  break (32)                            jip:L10             uip:L10\n"
    "        send.ugm (16)             r2      r43    null:0  0x00000000  0x04403580   {$10}  // "
    "wr:2+0, rd:4; load.ugm.d32x4.a64\n"
    "(f0.0)  if (32)                               jip:L9              uip:L9\n"
    "        send.ugm (16)             r6      r47    null:0  0x00000000  0x04403580   {$11}  // "
    "wr:2+0, rd:4; load.ugm.d16u32.a64.flat[A+0xc]\n"
    "L9:\n"
    "        endif (32)                            L10\n"
    "        send.slm (16)             null    r126   r61:1   0x00000040  0x02000504   {$2}  // "
    "wr:1+1, rd:0; store.slm.d32.a32\n"
    "        send.slm (32)             r1      r69    null:0  0x00000000  0x02403500   {$3}  // "
    "wr:1+0, rd:4; load.slm.d32x4.a32.?\n"
    "        send.ugm (16)             r1      r69    null:0  0x00000000  0x02403500   {$4}  // "
    "wr:1+a0.4, rd:4; load.ugm.d32x16t.a32.ss[a0.4]\n"
    "(W)     sync.nop (1)                          null                              {$3.dst}\n"
    "        mad (16)                  r98:f         r40:f             r28:f             "
    "r24<1>:f {$10.dst}\n"
    "        mad (16)                  r99:f         r41:f             r29:f             r24<1>:f\n"
    "        mad (16)                  r9:d          r41:d             r29:d             r24<1>:d\n"
    "        add (16)                  r61:q         r24:q             r22:q           {I@3}\n"
    "(W)     mov (1)                   r8            0x00000004\n"
    "L10:\n"
    "        while (32)                            L6\n"
    "        mul (32)                  r98:f         r98:f             r2:f\n"
    "        send.hdc1 (32)            null    r77    r40     0x00000080  0x080694FD   {$4}  // "
    "wr:4+2, rd:0; a64_untyped_write:xy simd16 (16) flat+0x0\n"
    "(W)     send.ts (8)               null    r127   null    0x00000000  0x02000000   {EOT,@1}\n";

START_TEST(reads_code_for_intel)
{
    const isa_gpu gpu = {.width = 32, .native = 16};
    isa_figures f;

    ck_assert(isa_read(intel_product, &gpu, 0, &f));
    ck_assert(f.loop);
    ck_assert_equal(f.fma, 2 * 0.5);
    ck_assert_equal(f.address, 0.5);
    /* break, if, endif and while compute all lanes. Three instructions compute 16 of 32 lanes; one
     * of them moves a single lane, but costs as much. */
    ck_assert_equal(f.valu, 4 + 3 * 0.5);
    ck_assert_equal(f.load.count[4], 0.5);
    ck_assert_equal(f.load.count[0], 0.5);
    ck_assert_equal(f.lds_read.count[4], 1);
    ck_assert_equal(f.lds_write.count[1], 0.5);
    ck_assert_equal(f.waits, 1);
    ck_assert_equal(f.flight, 16 + 2);
    ck_assert_equal(f.result.count[2], 1);
    ck_assert_equal(f.result_valu, 0.5);
}
END_TEST

START_TEST(reads_matrix_products_for_intel)
{
    static const char text[] =
        "L1:\n"
        "(W)     dpas.8x8 (16)             r32<0>:f      r8<0;0,0>:f       r24<0;0,0>:hf     "
        "r56<0;0,0>:hf {$15}\n"
        "        while (16)                            L1\n";
    const isa_gpu gpu = {.width = 16, .native = 16};
    isa_figures f;

    ck_assert(isa_read(text, &gpu, 0, &f));
    ck_assert_equal(f.matrix, 1);
    ck_assert_equal(f.fma, 8 * 16 * 16 / 16);
}
END_TEST

START_TEST(refuses_what_is_not_machine_code)
{
    isa_figures f;

    ck_assert(!isa_read("", NULL, 0, &f));
    ck_assert(!isa_read("shader: MESA_SHADER_COMPUTE\n", NULL, 0, &f));
}
END_TEST

TESTS(machine_code)
{
    tcase_add_test(tests, counts_a_step_of_a_product);
    tcase_add_test(tests, counts_products_of_pairs);
    tcase_add_test(tests, counts_products_of_matrices);
    tcase_add_test(tests, follows_jumps_to_the_condition_of_a_loop);
    tcase_add_test(tests, sees_a_wait_between_load_and_product);
    tcase_add_test(tests, reads_a_program_without_a_loop);
    tcase_add_test(tests, reads_code_for_intel);
    tcase_add_test(tests, reads_matrix_products_for_intel);
    tcase_add_test(tests, refuses_what_is_not_machine_code);
}
