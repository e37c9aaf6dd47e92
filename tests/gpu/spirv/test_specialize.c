/* Specialization of shaders: the library replaces specialization constants by their values and
 * folds them before the driver gets the shader. Tests its arithmetic and the form of its result.
 * All other GPU tests, which run with the validation layers, show that the result is valid and
 * equivalent. */
#include <string.h>

#include "gpu/pipeline/shader.h"
#include "gpu/spirv/constant_folding.h"
#include "gpu/spirv/reader.h"
#include "gpu/spirv/spirv.h"
#include "shaders/params/attention.h"
#include "support/check_main.h"

#include "base/alloc.h"
#include "base/fault.h"

#define MINUS(n) (0u - (n))

START_TEST(constant_folding)
{
    static const struct {
        uint32_t opcode;
        int count;
        uint32_t operand[3];
        uint32_t result;
    } cases[] = {
        {83, 1, {7}, 7},                       /* CopyObject */
        {126, 1, {3}, MINUS(3)},               /* SNegate */
        {128, 2, {0xffffffff, 2}, 1},          /* IAdd */
        {130, 2, {1, 2}, MINUS(1)},            /* ISub */
        {132, 2, {0x10000, 0x10001}, 0x10000}, /* IMul */
        {134, 2, {7, 2}, 3},
        {137, 2, {7, 4}, 3}, /* UDiv, UMod */
        {164, 2, {1, 1}, 1},
        {165, 2, {1, 1}, 0}, /* LogicalEqual, LogicalNotEqual */
        {166, 2, {0, 1}, 1},
        {167, 2, {0, 1}, 0}, /* LogicalOr, LogicalAnd */
        {168, 1, {1}, 0},
        {168, 1, {0}, 1}, /* LogicalNot */
        {169, 3, {1, 5, 6}, 5},
        {169, 3, {0, 5, 6}, 6}, /* Select */
        {170, 2, {4, 4}, 1},
        {171, 2, {4, 4}, 0}, /* IEqual, INotEqual */
        {172, 2, {MINUS(1), 1}, 1},
        {173, 2, {MINUS(1), 1}, 0}, /* UGreaterThan, SGreaterThan */
        {174, 2, {2, 2}, 1},
        {175, 2, {MINUS(2), 2}, 0}, /* UGreaterThanEqual, SGreaterThanEqual */
        {176, 2, {MINUS(1), 1}, 0},
        {177, 2, {MINUS(1), 1}, 1}, /* ULessThan, SLessThan */
        {178, 2, {3, 2}, 0},
        {179, 2, {MINUS(3), 2}, 1}, /* ULessThanEqual, SLessThanEqual */
        {194, 2, {0x80000000, 31}, 1},
        {196, 2, {1, 31}, 0x80000000}, /* shifts */
        {197, 2, {5, 3}, 7},
        {198, 2, {5, 3}, 6}, /* BitwiseOr, BitwiseXor */
        {199, 2, {5, 3}, 1},
        {200, 1, {0}, 0xffffffff}, /* BitwiseAnd, Not */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr__folded_value values[3];
        for (int k = 0; k < cases[i].count; k++)
            values[k] = (tsr__folded_value){true, cases[i].operand[k]};
        tsr__folded_value got = tsr__spirv_fold(cases[i].opcode, values, cases[i].count);
        ck_assert_msg(got.known && got.bits == cases[i].result, "case %d: opcode %u gives %u",
                      (int)i, (unsigned)cases[i].opcode, (unsigned)got.bits);
        if (cases[i].opcode == 169)
            continue; /* tested below */
        values[0].known = false;
        if (cases[i].count == 1 || cases[i].opcode != 166) /* x || true is known */
            ck_assert_msg(!tsr__spirv_fold(cases[i].opcode, values, cases[i].count).known,
                          "case %d", (int)i);
    }
}
END_TEST

START_TEST(leaves_what_it_cannot_know)
{
    const tsr__folded_value unknown = {false, 0}, zero = {true, 0}, one = {true, 1};
    ck_assert(!tsr__spirv_fold(134, (tsr__folded_value[]){one, zero}, 2).known); /* 1 / 0 */
    ck_assert(!tsr__spirv_fold(137, (tsr__folded_value[]){one, zero}, 2).known);
    ck_assert(!tsr__spirv_fold(196, (tsr__folded_value[]){one, {true, 32}}, 2).known);
    ck_assert(!tsr__spirv_fold(129, (tsr__folded_value[]){one, one}, 2).known); /* FAdd */
    ck_assert(!tsr__spirv_fold(169, (tsr__folded_value[]){unknown, one, one}, 3).known);
    ck_assert(!tsr__spirv_fold(169, (tsr__folded_value[]){one, unknown, one}, 3).known);
    /* For these instructions, one known operand determines the result. */
    ck_assert(tsr__spirv_fold(169, (tsr__folded_value[]){one, one, unknown}, 3).bits == 1);
    ck_assert(tsr__spirv_fold(166, (tsr__folded_value[]){unknown, one}, 2).bits == 1);
    tsr__folded_value both = tsr__spirv_fold(167, (tsr__folded_value[]){unknown, zero}, 2);
    ck_assert(both.known && both.bits == 0);
}
END_TEST

static size_t count_opcode(const uint32_t *code, size_t bytes, uint32_t low, uint32_t high)
{
    size_t count = 0;
    for (size_t at = 5; at < bytes / 4; at += code[at] >> 16) {
        ck_assert(code[at] >> 16 > 0);
        count += (code[at] & 0xffff) >= low && (code[at] & 0xffff) <= high;
    }
    return count;
}

/* Specializes every built-in shader with the default values of its constants: no specialization
 * constant may be left, and no shader may have grown. */
START_TEST(every_shader)
{
    const uint32_t *seen = NULL;
    for (int shader = 0; shader < TSR__SHADER_COUNT; shader++)
        for (int storage = 0; storage < TSR__STORAGE_COUNT; storage++) {
            const uint32_t *code = tsr__shader_binaries[shader].variant[storage].code;
            size_t bytes = tsr__shader_binaries[shader].variant[storage].size_bytes, out_bytes;
            uint32_t *out;
            if (!code || code == seen)
                continue;
            seen = code;
            ck_assert_ok(tsr__spirv_specialize(code, bytes, NULL, 0, &out, &out_bytes));
            ck_assert_uint_le(out_bytes, bytes);
            ck_assert_uint_eq(count_opcode(out, out_bytes, OP_SPEC_CONSTANT_TRUE, OP_SPEC_CONSTANT),
                              0);
            ck_assert_uint_eq(count_opcode(out, out_bytes, OP_FUNCTION, OP_FUNCTION),
                              count_opcode(code, bytes, OP_FUNCTION, OP_FUNCTION));
            tsr__free(out);
        }
}
END_TEST

static bool has_capability(const uint32_t *code, size_t bytes, uint32_t capability)
{
    for (size_t at = 5; at < bytes / 4; at += code[at] >> 16)
        if ((code[at] & 0xffff) == OP_CAPABILITY && code[at + 1] == capability)
            return true;
    return false;
}

/* A kernel that can add up values of subgroups needs the capability only in the form that does. */
START_TEST(capability_of_what_is_dead)
{
    const tsr__shader_binary *shader = &tsr__shader_binaries[TSR__SHADER_MATMUL_VECTOR_K];
    for (uint32_t subgroup = 0; subgroup <= 32; subgroup += 32) {
        const uint32_t spec[] = {64, 1, 4, TSR_F32, TSR_F16, 0, subgroup, 0};
        uint32_t *out;
        size_t bytes;
        ck_assert_ok(tsr__spirv_specialize(shader->variant[0].code, shader->variant[0].size_bytes,
                                           spec, 8, &out, &bytes));
        ck_assert_int_eq(has_capability(out, bytes, CAPABILITY_GROUP_NON_UNIFORM_ARITHMETIC),
                         subgroup > 0);
        tsr__free(out);
    }
}
END_TEST

/* The same for the quads of subgroups. */
START_TEST(quads_of_what_is_dead)
{
    const tsr__shader_binary *shader = &tsr__shader_binaries[TSR__SHADER_ATTENTION_FEW];
    for (uint32_t lanes = 1; lanes <= 4; lanes += 3) {
        const uint32_t spec[] = {128, 4,       16, TSR_F32, TSR_F32, TSR_F32, 0, 1, 0,
                                 0,   TSR_F32, 0,  0,       16,      0,       0, 0, lanes};
        uint32_t *out;
        size_t bytes;
        ck_assert_ok(tsr__spirv_specialize(shader->variant[0].code, shader->variant[0].size_bytes,
                                           spec, 18, &out, &bytes));
        ck_assert_int_eq(has_capability(out, bytes, CAPABILITY_GROUP_NON_UNIFORM_QUAD), lanes > 1);
        tsr__free(out);
    }
}
END_TEST

/* Of the shader for copies, a copy of 16-byte units needs only a twentieth; the rest must be
 * removed. */
START_TEST(removes_what_is_dead)
{
    const tsr__shader_binary *copy = &tsr__shader_binaries[TSR__SHADER_COPY];
    const uint32_t spec[] = {64, 8, 8, 1, 0, 0};
    uint32_t *out;
    size_t bytes;
    ck_assert_ok(tsr__spirv_specialize(copy->variant[0].code, copy->variant[0].size_bytes, spec, 6,
                                       &out, &bytes));
    ck_assert_uint_lt(bytes, copy->variant[0].size_bytes / 8);
    ck_assert_uint_eq(count_opcode(out, bytes, 240, 241), 0); /* OpAtomicAnd, OpAtomicOr */
    tsr__free(out);
}
END_TEST

/* Counts the calls of functions that load 16 aligned bytes. */
static int count_aligned_loads(const uint32_t *words, size_t size_bytes)
{
    enum { FUNCTION = 54, CALL = 57, LOAD = 61, ALIGNED = 2, MOST = 8 };
    uint32_t function = 0, loading[MOST];
    int functions = 0, count = 0;
    for (size_t at = TSR__SPIRV_HEADER; at < size_bytes / 4; at += words[at] >> 16) {
        const uint32_t opcode = words[at] & 0xffff, length = words[at] >> 16;
        if (opcode == FUNCTION)
            function = words[at + 2];
        if (opcode == LOAD && length > 5 && (words[at + 4] & ALIGNED) && words[at + 5] == 16 &&
            (functions == 0 || loading[functions - 1] != function)) {
            ck_assert_int_lt(functions, MOST);
            loading[functions++] = function;
        }
    }
    for (size_t at = TSR__SPIRV_HEADER; at < size_bytes / 4; at += words[at] >> 16)
        for (int i = 0; i < functions; i++)
            count += (words[at] & 0xffff) == CALL && words[at + 3] == loading[i];
    return count;
}

/* The rows of keys and values are most of what attention reads. If all rows are at multiples of 16
 * bytes, kernels promise the driver that each load of four floats is aligned. The results of ranges
 * of keys, which the kernel for few queries merges, are always aligned. */
START_TEST(attention_loads_16_aligned_bytes)
{
    static const struct {
        tsr__shader shader;
        int load, count; /* load: the index of the constant that says how to load */
        uint32_t spec[17];
    } kernels[] = {
        {TSR__SHADER_ATTENTION_FEW,
         7,
         17,
         {128, 4, 16, TSR_F32, TSR_F32, TSR_F32, 0, 0, 0, 0, TSR_F32, 0, 0, 16, 0, 0, 0}},
        {TSR__SHADER_ATTENTION,
         10,
         17,
         {128, 2, 1, TSR_ATTENTION_DK, TSR_F32, TSR_F32, TSR_F32, TSR_F32, TSR_F32, 0, 0, 0, 0, 0,
          0, 1, 1}},
    };
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        const tsr__shader_binary *binary = &tsr__shader_binaries[kernels[i].shader];
        int of_results = 0;
        for (uint32_t load = TSR_ATTENTION_LOAD_SCALAR; load <= TSR_ATTENTION_LOAD_ALIGNED;
             load++) {
            uint32_t spec[17], *out;
            size_t bytes;
            memcpy(spec, kernels[i].spec, sizeof spec);
            spec[kernels[i].load] = load;
            ck_assert_ok(tsr__spirv_specialize(binary->variant[0].code,
                                               binary->variant[0].size_bytes, spec,
                                               kernels[i].count, &out, &bytes));
            const int count = count_aligned_loads(out, bytes);
            if (load == TSR_ATTENTION_LOAD_SCALAR)
                of_results = count;
            ck_assert_int_eq(count > of_results, load == TSR_ATTENTION_LOAD_ALIGNED);
            tsr__free(out);
        }
    }
}
END_TEST

/* A function of two blocks, of which each lacks its terminator in turn; then the module ends within
 * the second one. */
START_TEST(blocks_without_terminator)
{
    enum { WORDS = 23, FIRST = 17, SECOND = 21, NOP = 1 << 16 | OP_NOP };
    static const uint32_t module[WORDS] = {
        0x07230203,
        0x10500,
        0,
        6,
        0, /* the header */
        2 << 16 | 19,
        1,
        3 << 16 | 33,
        2,
        1, /* types: void, and a function of it */
        5 << 16 | OP_FUNCTION,
        1,
        3,
        0,
        2, /* the function */
        2 << 16 | OP_LABEL,
        4,
        2 << 16 | OP_BRANCH,
        5, /* the first block */
        2 << 16 | OP_LABEL,
        5,
        1 << 16 | OP_RETURN, /* the second block */
        1 << 16 | OP_FUNCTION_END,
    };
    static const struct {
        size_t count, from, to; /* words `from` to `to` − 1 are replaced */
        const char *error;
    } cases[] = {
        {WORDS, 0, 0, NULL},
        {WORDS, FIRST, FIRST + 2, "the SPIR-V is damaged: block 4 does not end in a branch"},
        {WORDS, SECOND, SECOND + 1, "the SPIR-V is damaged: block 5 does not end in a branch"},
        {SECOND, 0, 0, "the SPIR-V is damaged: block 5 does not end in a branch"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t words[WORDS], *out = NULL;
        size_t bytes = 0;
        memcpy(words, module, sizeof words);
        for (size_t at = cases[i].from; at < cases[i].to; at++)
            words[at] = NOP;
        const tsr_status status =
            tsr__spirv_specialize(words, 4 * cases[i].count, NULL, 0, &out, &bytes);
        if (cases[i].error) {
            ck_assert_int_eq(status, TSR_ERR_INVALID);
            ck_assert_str_eq(tsr_last_error(), cases[i].error);
            ck_assert_ptr_null(out);
        } else {
            ck_assert_ok(status);
            ck_assert_uint_eq(bytes, sizeof module);
            ck_assert_mem_eq(out, module, bytes);
            tsr__free(out);
        }
    }
}
END_TEST

START_TEST(out_of_memory)
{
    const tsr__shader_binary *copy = &tsr__shader_binaries[TSR__SHADER_COPY];
    for (uint64_t n = 0; n < 4; n++) {
        uint32_t *out = NULL;
        size_t bytes = 0;
        tsr__fault_arm(TSR__FAULT_ALLOC, n, 0);
        ck_assert_int_eq(tsr__spirv_specialize(copy->variant[0].code, copy->variant[0].size_bytes,
                                               NULL, 0, &out, &bytes),
                         TSR_ERR_NO_MEMORY);
        tsr__fault_disarm();
        ck_assert_ptr_null(out);
    }
}
END_TEST

TESTS(specialize)
{
    tcase_add_test(tests, constant_folding);
    tcase_add_test(tests, leaves_what_it_cannot_know);
    tcase_add_test(tests, every_shader);
    tcase_add_test(tests, capability_of_what_is_dead);
    tcase_add_test(tests, quads_of_what_is_dead);
    tcase_add_test(tests, removes_what_is_dead);
    tcase_add_test(tests, attention_loads_16_aligned_bytes);
    tcase_add_test(tests, blocks_without_terminator);
    tcase_add_test(tests, out_of_memory);
}
