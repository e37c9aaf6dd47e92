/* Tests kernels whose sums have a fixed order. For every addition, the compiler must be forbidden
 * to rearrange it or to fuse it with a product, so that all devices give the same bits. `precise`
 * in GLSL becomes the decoration NoContraction in SPIR-V, unless the optimizer loses it when it
 * unrolls a loop. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu/pipeline/shader.h"
#include "support/check_main.h"

/* From the SPIR-V specification. */
enum { OP_DECORATE = 71, OP_FADD = 129, NO_CONTRACTION = 42, HEADER_WORDS = 5, BOUND_WORD = 3 };

static const tsr__shader fixed_order[] = {
    TSR__SHADER_ATTENTION_DELTA,
    TSR__SHADER_CROSS_ENTROPY,
    TSR__SHADER_CROSS_ENTROPY_SHARD,
    TSR__SHADER_EMBEDDING_GRAD,
    TSR__SHADER_INDEX_ADD,
    TSR__SHADER_MATMUL_SUM,
    TSR__SHADER_NORM,
    TSR__SHADER_NORM_COLUMNS,
    TSR__SHADER_NORM_GRAD,
    TSR__SHADER_REDUCE_COLUMNS,
    TSR__SHADER_REDUCE_ROWS,
    TSR__SHADER_REDUCE_SHORT,
    TSR__SHADER_SOFTMAX,
    TSR__SHADER_SOFTMAX_GRAD,
    TSR__SHADER_SUM_SQUARES,
};

typedef struct additions {
    int all, free; /* free: additions that the compiler may rearrange */
} additions;

static additions count_additions(const uint32_t *code, size_t words)
{
    additions sum = {0, 0};
    bool *fixed = calloc(code[BOUND_WORD], sizeof *fixed); /* decorations come before the code */

    ck_assert_ptr_nonnull(fixed);
    for (size_t at = HEADER_WORDS; at < words;) {
        uint32_t op = code[at] & 0xffff, length = code[at] >> 16;
        ck_assert_uint_gt(length, 0);
        ck_assert_uint_le(at + length, words);
        if (op == OP_DECORATE && code[at + 2] == NO_CONTRACTION)
            fixed[code[at + 1]] = true;
        if (op == OP_FADD) {
            sum.all++;
            sum.free += !fixed[code[at + 2]];
        }
        at += length;
    }
    free(fixed);
    return sum;
}

START_TEST(additions_of_a_fixed_order_are_precise)
{
    const tsr__shader_binary *binary = &tsr__shader_binaries[fixed_order[_i]];

    for (int s = 0; s < TSR__STORAGE_COUNT; s++) {
        additions sum = count_additions(binary->variant[s].code,
                                        binary->variant[s].size_bytes / sizeof(uint32_t));
        ck_assert_int_gt(sum.all, 0);
        ck_assert_msg(sum.free == 0, "%s: %d of %d additions are not precise", binary->name,
                      sum.free, sum.all);
    }
}
END_TEST

/* Checks that the test above can fail: other kernels have additions that may be fused. */
START_TEST(other_kernels_have_free_additions)
{
    const tsr__shader_binary *binary = &tsr__shader_binaries[TSR__SHADER_ROPE];
    additions sum =
        count_additions(binary->variant[TSR__STORAGE_S16].code,
                        binary->variant[TSR__STORAGE_S16].size_bytes / sizeof(uint32_t));

    ck_assert_int_gt(sum.free, 0);
}
END_TEST

TESTS(precise)
{
    tcase_add_loop_test(tests, additions_of_a_fixed_order_are_precise, 0,
                        (int)(sizeof fixed_order / sizeof *fixed_order));
    tcase_add_test(tests, other_kernels_have_free_additions);
}
