/* What SPIR-V promises about alignment: of matrices in shared memory, and of hot loads.
 *
 * Cooperative matrices that are loaded from shared memory or stored there must start at multiples
 * of 16 bytes. SPIR-V has no decoration for this, so the types in the library's modules must
 * promise it: drivers align a variable as its type demands, whatever other variables they place
 * around it. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gpu/pipeline/shader.h"
#include "gpu/quant/dequantize.h"
#include "gpu/spirv/reader.h"
#include "gpu/spirv/spirv.h"
#include "shaders/params/attention.h"
#include "shaders/params/matmul.h"
#include "shaders/params/quant.h"
#include "support/check_main.h"

/* Numbers of the SPIR-V specification that reader.h does not have. */
enum { OP_ACCESS_CHAIN = 65, OP_COOPERATIVE_MATRIX_LOAD = 4457, STORAGE_WORKGROUP = 4 };
enum { ALIGNMENT = 16 };

/* Returns the instruction with this result, which is word `place` of the instruction. */
static const uint32_t *defined(const tsr__spirv_module *m, uint32_t id, size_t place,
                               uint32_t opcode)
{
    for (size_t at = TSR__SPIRV_HEADER; at < m->count; at += tsr__spirv_length(m, at))
        if (tsr__spirv_length(m, at) > place && m->words[at + place] == id &&
            (opcode == 0 || tsr__spirv_opcode(m, at) == opcode))
            return m->words + at;
    return NULL;
}

/* The alignment that a type demands, in bytes. */
static uint32_t alignment_of(const tsr__spirv_module *m, uint32_t type)
{
    const uint32_t *t = tsr__spirv_find_type(m, type, 2);
    uint32_t most = 0;
    ck_assert_ptr_nonnull(t);
    switch (t[0] & 0xffff) {
    case OP_TYPE_INT:
    case OP_TYPE_FLOAT:
        return t[2] / 8;
    case OP_TYPE_VECTOR:
        return alignment_of(m, t[2]) * (t[3] == 3 ? 4 : t[3]);
    case OP_TYPE_ARRAY:
        return alignment_of(m, t[2]);
    case OP_TYPE_STRUCT:
        for (uint32_t i = 2; i < t[0] >> 16; i++) {
            const uint32_t member = alignment_of(m, t[i]);
            most = member > most ? member : most;
        }
        return most;
    default:
        ck_abort_msg("unexpected type %u", t[0] & 0xffff);
    }
}

/* True if the pointer is to an element of a variable, or of a member of a variable, that starts at
 * a multiple of ALIGNMENT. A member does if it is the first or follows one that is a vector of this
 * size. */
static bool is_aligned(const tsr__spirv_module *m, const uint32_t *variable, const uint32_t *chain)
{
    const uint32_t *pointer = tsr__spirv_find_type(m, variable[1], 4);
    ck_assert_ptr_nonnull(pointer);
    const uint32_t *type = tsr__spirv_find_type(m, pointer[3], 2);
    ck_assert_ptr_nonnull(type);
    if (alignment_of(m, pointer[3]) % ALIGNMENT != 0)
        return false;
    if ((type[0] & 0xffff) != OP_TYPE_STRUCT)
        return true;
    uint32_t member;
    ck_assert(tsr__spirv_constant_value(m, chain[4], &member));
    return member == 0 || (member == 1 && alignment_of(m, type[2]) == ALIGNMENT &&
                           tsr__spirv_find_type(m, type[2], 4) &&
                           (tsr__spirv_find_type(m, type[2], 4)[0] & 0xffff) == OP_TYPE_VECTOR);
}

/* Counts the loads and stores of matrices in shared memory, and those of them that are not
 * aligned. */
static void count_accesses(const tsr__spirv_module *m, int *all, int *unaligned)
{
    *all = *unaligned = 0;
    for (size_t at = TSR__SPIRV_HEADER; at < m->count; at += tsr__spirv_length(m, at)) {
        const uint32_t opcode = tsr__spirv_opcode(m, at);
        if (opcode != OP_COOPERATIVE_MATRIX_LOAD && opcode != OP_COOPERATIVE_MATRIX_STORE)
            continue;
        const uint32_t id = m->words[at + (opcode == OP_COOPERATIVE_MATRIX_LOAD ? 3 : 1)];
        const uint32_t *chain = defined(m, id, 2, OP_ACCESS_CHAIN);
        ck_assert_msg(chain != NULL, "a matrix is accessed by another pointer than a chain's");
        const uint32_t *variable = defined(m, chain[3], 2, OP_VARIABLE);
        if (!variable || variable[3] != STORAGE_WORKGROUP)
            continue; /* in a buffer */
        ++*all;
        *unaligned += !is_aligned(m, variable, chain);
    }
}

static tsr__spirv_module module_of(int shader)
{
    const tsr__shader_binary *binary = &tsr__shader_binaries[shader];
    return (tsr__spirv_module){
        .words = binary->variant[TSR__STORAGE_S16].code,
        .count = binary->variant[TSR__STORAGE_S16].size_bytes / sizeof(uint32_t),
    };
}

START_TEST(matrices_in_shared_memory_are_aligned)
{
    int modules = 0;
    for (int i = 0; i < TSR__SHADER_COUNT; i++) {
        const tsr__spirv_module m = module_of(i);
        int all = 0, unaligned = 0;
        if (m.words)
            count_accesses(&m, &all, &unaligned);
        ck_assert_msg(unaligned == 0, "%s: %d of %d accesses are not aligned to %d bytes",
                      tsr__shader_binaries[i].name, unaligned, all, ALIGNMENT);
        modules += all > 0;
    }
    ck_assert_int_ge(modules, 4);
}
END_TEST

/* The test above notices a module whose shared arrays have elements of eight bytes. */
START_TEST(notices_smaller_elements)
{
    static const int shaders[] = {TSR__SHADER_ATTENTION_COOPMAT, TSR__SHADER_ATTENTION_COOPMAT_BF16,
                                  TSR__SHADER_MATMUL_COOPMAT, TSR__SHADER_MATMUL_COOPMAT_BF16};
    const tsr__spirv_module m = module_of(shaders[_i]);
    int all, unaligned, vectors = 0;
    ck_assert_ptr_nonnull(m.words);
    uint32_t *copy = malloc(m.count * sizeof *copy);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, m.words, m.count * sizeof *copy);
    for (size_t at = TSR__SPIRV_HEADER; at < m.count; at += tsr__spirv_length(&m, at))
        if (tsr__spirv_opcode(&m, at) == OP_TYPE_VECTOR && copy[at + 3] == 4) {
            copy[at + 3] = 2;
            vectors++;
        }
    ck_assert_int_gt(vectors, 0);
    count_accesses(&(tsr__spirv_module){.words = copy, .count = m.count}, &all, &unaligned);
    ck_assert_int_gt(all, 0);
    ck_assert_int_eq(unaligned, all);
    free(copy);
}
END_TEST

/* Loads ---------------------------------------------------------------------------------------- */

/* Some drivers make one access of a vector only if the shader promises that it starts at a multiple
 * of its size. Kernels that memory bandwidth limits must load 16 bytes at a time. */

enum { OP_FUNCTION_CALL = 57, OP_LOAD = 61, MEMORY_ALIGNED = 2 };

typedef struct hot_loads {
    int vectors;          /* loads of vectors from buffers */
    int aligned, scalars; /* those that are aligned to 16 bytes; loads of numbers */
} hot_loads;

/* Counts the loads from buffers in a function and in the functions that it calls. */
static void count_loads(const tsr__spirv_module *m, uint32_t function, hot_loads *out)
{
    bool inside = false;
    for (size_t at = TSR__SPIRV_HEADER; at < m->count; at += tsr__spirv_length(m, at)) {
        const uint32_t *w = m->words + at, opcode = tsr__spirv_opcode(m, at);
        if (opcode == OP_FUNCTION)
            inside = w[2] == function;
        if (!inside)
            continue;
        if (opcode == OP_FUNCTION_CALL)
            count_loads(m, w[3], out);
        if (opcode != OP_LOAD || tsr__spirv_length(m, at) < 6 || !(w[4] & MEMORY_ALIGNED))
            continue;
        const uint32_t *type = tsr__spirv_find_type(m, w[1], 2);
        ck_assert_ptr_nonnull(type);
        if ((type[0] & 0xffff) != OP_TYPE_VECTOR) {
            out->scalars++;
            continue;
        }
        out->vectors++;
        out->aligned += w[5] == ALIGNMENT;
    }
}

static hot_loads loads_of(int shader, const uint32_t *spec, int spec_count)
{
    const tsr__spirv_module whole = module_of(shader);
    tsr__spirv_module m = {0};
    hot_loads loads = {0};
    uint32_t *code = NULL;
    size_t bytes = 0;
    ck_assert_ok(tsr__spirv_specialize(whole.words, whole.count * sizeof(uint32_t), spec,
                                       spec_count, &code, &bytes));
    m.words = code;
    m.count = bytes / sizeof(uint32_t);
    for (size_t at = TSR__SPIRV_HEADER; at < m.count; at += tsr__spirv_length(&m, at))
        if (tsr__spirv_opcode(&m, at) == OP_ENTRY_POINT)
            count_loads(&m, m.words[at + 2], &loads);
    tsr__free(code);
    return loads;
}

START_TEST(weights_are_loaded_in_sixteen_bytes)
{
    static const tsr_dtype sixteen[] = {TSR_F16, TSR_BF16};
    static const tsr_dtype formats[] = {TSR_Q4_0, TSR_Q5_0, TSR_Q8_0};
    hot_loads loads;
    for (int i = 0; i < 2; i++) {
        /* one row of f32, then one of the weights' dtype; the last form has half the width */
        for (int form = 0; form < 3; form++) {
            const uint32_t spec[] = {64,
                                     1,
                                     4,
                                     form == 1 ? (uint32_t)sixteen[i] : TSR_F32,
                                     (uint32_t)sixteen[i],
                                     form == 2 ? TSR_MM_LOAD_VEC_K : TSR_MM_LOAD_VEC8_K,
                                     32,
                                     0,
                                     0};
            loads = loads_of(TSR__SHADER_MATMUL_VECTOR_K, spec, 9);
            ck_assert_int_ge(loads.vectors, 2);
            ck_assert_msg((loads.aligned == loads.vectors) == (form < 2),
                          "%s, form %d: %d of %d loads are aligned to 16 bytes",
                          tsr_dtype_name(sixteen[i]), form, loads.aligned, loads.vectors);
        }
    }
    for (int i = 0; i < 3; i++)
        for (uint32_t staged = 0; staged < 2; staged++) {
            uint32_t spec[TSR_QUANT_SPECS + 9] = {0};
            tsr__quant_describe(formats[i], spec);
            memcpy(spec + TSR_QUANT_SPECS,
                   (uint32_t[]){64, 1, 4, TSR_F32, TSR_MM_LOAD_VEC_K, 0, 0, 32, staged},
                   9 * sizeof *spec);
            loads = loads_of(TSR__SHADER_MATMUL_BLOCKS, spec, TSR_QUANT_SPECS + 9);
            const int scalars = loads.scalars;
            ck_assert_int_eq(loads.aligned, loads.vectors);
            ck_assert_int_ge(loads.vectors, 1 + (int)staged); /* rows of a, and staged blocks */
            /* without staged blocks, their words are loaded one by one */
            memcpy(spec + TSR_QUANT_SPECS + 8, (uint32_t[]){!staged}, sizeof *spec);
            loads = loads_of(TSR__SHADER_MATMUL_BLOCKS, spec, TSR_QUANT_SPECS + 9);
            ck_assert(staged ? scalars < loads.scalars : scalars > loads.scalars);
        }
}
END_TEST

/* Large blocks of one row are read in vectors only: q4_k and q5_k by the invocations that multiply
 * them, q6_k through shared memory. The only numbers that are loaded are those of the epilogue. */
START_TEST(large_blocks_are_loaded_in_sixteen_bytes)
{
    static const struct {
        tsr_dtype format;
        uint32_t staged;
        int vectors; /* at least: the row, and the planes and scales or pieces of a column */
    } cases[] = {{TSR_Q4_K, 0, 3}, {TSR_Q5_K, 0, 4}, {TSR_Q6_K, 1, 2}, {TSR_Q6_K, 2, 2}};
    int scalars = -1;
    for (int i = 0; i < 4; i++) {
        uint32_t spec[TSR_QUANT_SPECS + 9] = {0};
        tsr__quant_describe(cases[i].format, spec);
        memcpy(spec + TSR_QUANT_SPECS,
               (uint32_t[]){64, 1, 4, TSR_F32, TSR_MM_LOAD_VEC_K, 0, 0, 32, cases[i].staged},
               9 * sizeof *spec);
        const hot_loads loads = loads_of(TSR__SHADER_MATMUL_BLOCKS, spec, TSR_QUANT_SPECS + 9);
        ck_assert_msg(loads.aligned == loads.vectors && loads.vectors >= cases[i].vectors,
                      "%s: %d of %d loads are aligned to 16 bytes", tsr_dtype_name(cases[i].format),
                      loads.aligned, loads.vectors);
        ck_assert_msg(scalars < 0 || loads.scalars == scalars, "%s: %d loads of numbers, not %d",
                      tsr_dtype_name(cases[i].format), loads.scalars, scalars);
        scalars = loads.scalars;
    }
    ck_assert_int_lt(scalars, 8);
}
END_TEST

/* Other blocks, and those of more rows, go through shared memory in pieces of 16 bytes. */
START_TEST(all_blocks_are_loaded_in_sixteen_bytes)
{
    static const tsr_dtype formats[] = {TSR_Q8_0,  TSR_Q4_0,  TSR_Q3_K,    TSR_Q4_K, TSR_Q6_K,
                                        TSR_MXFP4, TSR_NVFP4, TSR_IQ2_XXS, TSR_TQ1_0};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        int scalars = INT_MAX; /* without pieces in shared memory */
        for (uint32_t staged = 0; staged < 2; staged++) {
            uint32_t spec[TSR_QUANT_SPECS + 9] = {0};
            tsr__quant_describe(formats[i], spec);
            memcpy(spec + TSR_QUANT_SPECS,
                   (uint32_t[]){64, 8, 4, TSR_F32, TSR_MM_LOAD_VEC_K, 0, 0, 32, staged},
                   9 * sizeof *spec);
            const hot_loads loads = loads_of(TSR__SHADER_MATMUL_QUANT, spec, TSR_QUANT_SPECS + 9);
            ck_assert_msg(loads.aligned == loads.vectors && loads.vectors >= 1 + (int)staged &&
                              loads.scalars < scalars && (!staged || loads.scalars < 8),
                          "%s, staged %u: %d of %d loads are aligned, %d are of numbers",
                          tsr_dtype_name(formats[i]), staged, loads.aligned, loads.vectors,
                          loads.scalars);
            scalars = loads.scalars;
        }
    }
}
END_TEST

/* With the quads of subgroups, attention of few queries loads eight columns of 16-bit keys at once.
 * Of its other loads, only those of f32 queries are as wide. */
START_TEST(keys_are_loaded_in_sixteen_bytes)
{
    static const tsr_dtype dtypes[] = {TSR_F16, TSR_BF16};
    for (int i = 0; i < 2; i++) {
        uint32_t spec[] = {128,
                           4,
                           16,
                           TSR_F32,
                           (uint32_t)dtypes[i],
                           (uint32_t)dtypes[i],
                           0,
                           TSR_ATTENTION_LOAD_ALIGNED,
                           0,
                           1,
                           TSR_F32,
                           0,
                           0,
                           16,
                           0,
                           0,
                           0,
                           1};
        const hot_loads alone = loads_of(TSR__SHADER_ATTENTION_FEW, spec, 18);
        spec[17] = 4;
        const hot_loads quads = loads_of(TSR__SHADER_ATTENTION_FEW, spec, 18);
        ck_assert_int_gt(quads.aligned, alone.aligned);
    }
}
END_TEST

TESTS(alignment)
{
    tcase_add_test(tests, weights_are_loaded_in_sixteen_bytes);
    tcase_add_test(tests, large_blocks_are_loaded_in_sixteen_bytes);
    tcase_add_test(tests, all_blocks_are_loaded_in_sixteen_bytes);
    tcase_add_test(tests, keys_are_loaded_in_sixteen_bytes);
    tcase_add_test(tests, matrices_in_shared_memory_are_aligned);
    tcase_add_loop_test(tests, notices_smaller_elements, 0, 4);
}
