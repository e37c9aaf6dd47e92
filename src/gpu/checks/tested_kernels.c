/* Which case tests which kernel. Kernels for products are tested by matmul/self_test.c. */
#include "gpu/checks/tested_kernels.h"

#include <string.h>

#include "base/error.h"
#include "gpu/checks/cases.h"
#include "gpu/internal.h"
#include "gpu/matmul/self_test.h"
#include "gpu/quant/dequantize.h"
#include "gpu/self_test/self_test.h"
#include "shaders/params/attention.h"
#include "shaders/params/grouped.h"
#include "shaders/params/norm.h"
#include "shaders/params/quant.h"
#include "shaders/params/rows.h"
#include "tensor/check.h"
#include "tessera/quant.h"

typedef struct shader_case {
    tsr__shader shader;
    int dtype_at; /* the number of the specialization constant that is the dtype of the input */
    tsr__case_fn *run;
    const char *name; /* the kernel's name; NULL: the shader's name */
    /* The case is for pipelines whose specialization constant number `when` is from `first` to
     * `last`. If `when` is 0, it is for all pipelines. */
    int when;
    uint32_t first, last;
    /* The dtype of the kernel, if it computes with one dtype only and has no specialization
     * constant for it. 0: it computes with several. */
    tsr_dtype only;
    bool blocks; /* the case also tests each block format */
    /* returns whether the kernel can read a block format; NULL: it reads all */
    bool (*takes)(tsr_dtype format);
    /* constant number `dtype_at` is the dtype of keys and values, and the case is for pipelines
     * with a block format there */
    bool cached;
    bool by_bytes; /* constant number `dtype_at` is the size of an element instead of the dtype */
    bool optional; /* some devices lack the kernel, or never choose it */
} shader_case;

#define CASE_WITH(SHADER, DTYPE_AT, RUN, ...)                                                      \
    {                                                                                              \
        .shader = TSR__SHADER_##SHADER, .dtype_at = (DTYPE_AT), .run = tsr__case_##RUN,            \
        __VA_ARGS__                                                                                \
    }
#define CASE(SHADER, DTYPE_AT, RUN) CASE_WITH(SHADER, DTYPE_AT, RUN, .name = NULL)

/* The numbers of the specialization constants of norm.comp, norm_grad.comp, rope_append.comp,
 * matmul_narrow.comp, activate.comp, attention.comp, attention_few.comp,
 * pair_activate.comp, matmul_grouped.comp and matmul_grouped_few.comp by which the cases for these
 * shaders differ. */
enum {
    NORM_OUTPUT = 8,
    NORM_GRAD_ADDED = 8,
    ROPE_APPEND_Q_DTYPE = 5,
    NARROW_NORM = TSR_QUANT_SPECS + 4,
    NARROW_GATED = TSR_QUANT_SPECS + 5,
    ACTIVATE_GRADIENT = 3,
    ATTENTION_KIND = 3,
    ATTENTION_JOIN = 14,
    ATTENTION_NEW = 15,
    ATTENTION_LANES = 17,
    PAIR_GRADIENT = 4,
    GROUPED_LOAD = TSR_QUANT_SPECS + 11,
    GROUPED_FEW_BLOCKS = TSR_QUANT_SPECS + 7,
    GROUPED_MATRICES_BLOCKS = TSR_QUANT_SPECS + TSR__GROUPED_MATRICES_BLOCKS,
};
/* The dtypes of the rows and of the experts' matrices in matmul_grouped.comp, and in
 * matmul_grouped_few.comp, whose first constants are those of a block format. */
enum {
    GROUPED_X_DTYPE = TSR_QUANT_SPECS + 6,
    GROUPED_W_DTYPE,
    GROUPED_FEW_X_DTYPE = TSR_QUANT_SPECS + 2,
    GROUPED_FEW_W_DTYPE,
    GROUPED_GRAD_DTYPE = 6,
    GROUPED_MATRICES_THREADS = TSR_QUANT_SPECS, /* not a dtype */
};

/* A kernel for long rows that are divided into segments, one for each workgroup
 * (shaders/params/rows.h). A first dispatch computes results of the segments, a last one combines
 * them; PHASE_AT is the number of the specialization constant that tells which of these phases a
 * pipeline computes. */
#define DIVIDED(SHADER, DTYPE_AT, PHASE_AT, RUN)                                                   \
    CASE_WITH(SHADER, DTYPE_AT, RUN, .name = #RUN, .when = (PHASE_AT), .first = TSR_PHASE_FIRST,   \
              .last = TSR_PHASE_LAST, .optional = true)

/* A kernel for attention with cooperative matrices. Each is for one dtype. */
#define BY_MATRICES(SHADER, DTYPE, RUN, FIRST, LAST)                                               \
    CASE_WITH(SHADER, 0, RUN, .name = #RUN, .when = ATTENTION_KIND, .first = (FIRST),              \
              .last = (LAST), .only = (DTYPE), .optional = true)

/* A kernel that reads or stores keys and values in blocks. */
#define CACHED(SHADER, DTYPE_AT, RUN, ...)                                                         \
    CASE_WITH(SHADER, DTYPE_AT, RUN, .name = #RUN, .cached = true, __VA_ARGS__)

/* The cases, and which kernels they test. Kernels that are not listed are used without a test. */
static const shader_case cases[] = {
    CASE(SOFTMAX, 2, softmax),
    CASE(SOFTMAX_GRAD, 2, softmax_grad),
    CASE(NORM, 2, norm),
    CASE(NORM_GRAD, 2, norm_grad),
    CASE(NORM_COLUMNS, 1, norm_grad),
    CASE(CROSS_ENTROPY, 2, cross_entropy),
    CASE(CROSS_ENTROPY_SHARD, 2, cross_entropy_shard),
    CASE_WITH(NORM, 2, norm_with_stats, .name = "norm_with_stats", .when = NORM_OUTPUT,
              .first = TSR_NORM_BOTH, .last = TSR_NORM_BOTH, .optional = true),
    CASE_WITH(NORM_GRAD, 2, norm_grad_added, .name = "norm_grad_added", .when = NORM_GRAD_ADDED,
              .first = 1, .last = 1, .optional = true),
    DIVIDED(SOFTMAX, 2, 6, softmax_divided),
    DIVIDED(SOFTMAX_GRAD, 2, 7, softmax_grad_divided),
    DIVIDED(NORM, 2, 9, norm_divided),
    DIVIDED(NORM_GRAD, 2, 9, norm_grad_divided),
    DIVIDED(CROSS_ENTROPY, 2, 6, cross_entropy_divided),
    DIVIDED(CROSS_ENTROPY_SHARD, 2, 7, entropy_shard_divided),
    CASE(ARGMAX, 1, argmax),
    CASE(TOPK, 1, topk),
    CASE_WITH(CHOOSE, 1, choose, .only = TSR_F32),
    CASE(REDUCE_ROWS, 1, sum_rows),
    CASE(REDUCE_SHORT, 1, sum_short_rows),
    CASE(REDUCE_COLUMNS, 1, sum_columns),
    CASE(SUM_SQUARES, 1, sum_squares),
    CASE(ELEMENTWISE, 2, multiply),
    CASE(ELEMENTWISE3, 2, where),
    CASE_WITH(ACTIVATE, 2, silu, .when = ACTIVATE_GRADIENT),
    CASE_WITH(ACTIVATE, 2, silu_grad, .name = "activate_grad", .when = ACTIVATE_GRADIENT,
              .first = 1, .last = UINT32_MAX),
    CASE(ACTIVATE_MUL, 2, silu_mul),
    CASE(COPY, 1, copy),
    CASE(COPY_TILE, 0, transpose),
    CASE_WITH(FILL, 1, fill, .by_bytes = true),
    CASE(ROPE, 2, rope),
    CASE(EMBEDDING, 1, embedding),
    CASE(EMBEDDING_GRAD, 1, embedding_grad),
    CASE(INDEX_SELECT, 1, index_select),
    CASE(INDEX_ADD, 2, index_add),
    CASE(RANDOM_FILL, 3, random),
    CASE(DROPOUT, 3, dropout),
    CASE(ADAMW, 2, adamw),
    CASE(SGD, 2, sgd),
    CASE_WITH(CLIP_SCALE, 0, clip_scale, .only = TSR_F32),
    CASE(KV_APPEND, 1, kv_append),
    CACHED(KV_APPEND, 1, kv_append_blocks, .optional = false),
    CASE(ROPE_APPEND, 2, rope_append),
    CASE_WITH(ROPE_APPEND, 2, rope_append_apart, .name = "rope_append_apart",
              .when = ROPE_APPEND_Q_DTYPE, .first = 1, .last = UINT32_MAX),
    CASE_WITH(ATTENTION, 4, attention, .when = ATTENTION_KIND),
    CASE_WITH(ATTENTION, 4, attention_grad, .name = "attention_grad", .when = ATTENTION_KIND,
              .first = TSR_ATTENTION_DQ, .last = TSR_ATTENTION_DELTA),
    CACHED(ATTENTION, 5, attention_blocks, .when = ATTENTION_KIND),
    CACHED(ATTENTION_COOPMAT, 15, attention_blocks_coopmat, .optional = true),
    BY_MATRICES(ATTENTION_COOPMAT, TSR_F16, attention_coopmat, TSR_ATTENTION_FORWARD,
                TSR_ATTENTION_FORWARD),
    BY_MATRICES(ATTENTION_COOPMAT, TSR_F16, attention_coopmat_grad, TSR_ATTENTION_DQ,
                TSR_ATTENTION_DKV),
    BY_MATRICES(ATTENTION_COOPMAT_BF16, TSR_BF16, attention_coopmat, TSR_ATTENTION_FORWARD,
                TSR_ATTENTION_FORWARD),
    BY_MATRICES(ATTENTION_COOPMAT_BF16, TSR_BF16, attention_coopmat_grad, TSR_ATTENTION_DQ,
                TSR_ATTENTION_DKV),
    BY_MATRICES(ATTENTION_COOPMAT2, TSR_F16, attention_coopmat2_grad, TSR_ATTENTION_DQ,
                TSR_ATTENTION_DKV),
    BY_MATRICES(ATTENTION_COOPMAT2_BF16, TSR_BF16, attention_coopmat2_grad, TSR_ATTENTION_DQ,
                TSR_ATTENTION_DKV),
    CASE(ATTENTION_DELTA, 1, attention_delta),
    CASE_WITH(ATTENTION_SINKS_GRAD, 0, attention_sinks, .name = "attention_sinks_grad",
              .only = TSR_F32),
    CASE(ATTENTION_FEW, 3, attention_few),
    CASE_WITH(ATTENTION_FEW, 3, attention_lanes, .name = "attention_lanes", .when = ATTENTION_LANES,
              .first = 4, .last = 4, .optional = true),
    CASE_WITH(ATTENTION_FEW, 3, attention_joined, .name = "attention_joined",
              .when = ATTENTION_JOIN, .first = 1, .last = 1, .optional = true),
    CASE_WITH(ATTENTION_FEW, 3, attention_append, .name = "attention_append", .when = ATTENTION_NEW,
              .first = 1, .last = UINT32_MAX, .optional = true),
    CACHED(ATTENTION_FEW, 4, attention_append_blocks, .optional = true),
    CASE(ATTENTION_MERGE, 1, attention_few),
    CASE_WITH(MATMUL_QUANT, TSR_QUANT_SPECS + 3, quant_product, .blocks = true),
    CASE_WITH(MATMUL_BLOCKS, TSR_QUANT_SPECS + 3, long_quant_product, .blocks = true,
              .takes = tsr__quant_has_chunks, .optional = true),
    CASE_WITH(MATMUL_BLOCKS_INT8, TSR_QUANT_SPECS + 3, int8_product, .blocks = true,
              .takes = tsr__quant_is_scaled_words, .optional = true),
    CASE_WITH(MATMUL_NARROW_BLOCKS, TSR_QUANT_SPECS + 1, narrow_blocks, .blocks = true),
    CASE_WITH(MATMUL_NARROW, TSR_QUANT_SPECS + 1, narrow_norm, .name = "narrow_norm",
              .when = NARROW_NORM, .first = 1, .last = UINT32_MAX, .optional = true),
    CASE_WITH(MATMUL_NARROW, TSR_QUANT_SPECS + 1, narrow_gate, .name = "narrow_gate",
              .when = NARROW_GATED, .first = 1, .last = 1, .optional = true),
    CASE(CAUSAL_CONV, 2, causal_conv),
    CASE(CAUSAL_CONV_STATE, 2, causal_conv),
    CASE(CAUSAL_CONV_GRAD, 2, causal_conv_grad),
    CASE(CAUSAL_CONV_WEIGHT_GRAD, 2, causal_conv_grad),
    CASE(DELTA_STEP, 6, delta_step),
    CASE_WITH(DELTA_DECAY, 0, delta_chunks, .only = TSR_F32),
    CASE(DELTA_ROWS, 6, delta_chunks),
    CASE_WITH(DELTA_TRIANGLE, 0, delta_chunks, .only = TSR_F32),
    CASE(DELTA_SCAN, 8, delta_chunks),
    CASE_WITH(DELTA_SCAN_COOPMAT, 0, delta_matrices, .only = TSR_F32, .optional = true),
    CASE(DELTA_SCAN_GRAD, 8, delta_grad),
    CASE_WITH(DELTA_MASK_GRAD, 0, delta_grad, .only = TSR_F32),
    CASE(DELTA_TOKEN_GRAD, 6, delta_grad),
    CASE(DELTA_ROW_GRAD, 6, delta_grad),
    CASE_WITH(ROUTE, 0, route, .only = TSR_F32),
    CASE_WITH(ROUTE_GRAD, 0, route_grad, .only = TSR_F32),
    CASE_WITH(ROUTE_SORT, 0, route_sort, .only = TSR_F32),
    CASE(PAIR_SUM, 2, pair_sum),
    CASE_WITH(PAIR_ACTIVATE, 2, pair_activate, .when = PAIR_GRADIENT),
    CASE_WITH(PAIR_ACTIVATE, 2, pair_activate_grad, .name = "pair_activate_grad",
              .when = PAIR_GRADIENT, .first = 1, .last = 1),
    CASE_WITH(MATMUL_GROUPED, GROUPED_W_DTYPE, grouped, .when = GROUPED_LOAD,
              .last = TSR_GROUPED_BLOCKS - 1),
    CASE_WITH(MATMUL_GROUPED, GROUPED_X_DTYPE, grouped_blocks, .name = "matmul_grouped_blocks",
              .when = GROUPED_LOAD, .first = TSR_GROUPED_BLOCKS, .last = TSR_GROUPED_BLOCKS,
              .blocks = true),
    CASE_WITH(MATMUL_GROUPED_FEW, GROUPED_FEW_W_DTYPE, grouped_few, .when = GROUPED_FEW_BLOCKS),
    CASE_WITH(MATMUL_GROUPED_FEW, GROUPED_FEW_X_DTYPE, grouped_few_blocks,
              .name = "matmul_grouped_few_blocks", .when = GROUPED_FEW_BLOCKS, .first = 1,
              .last = 1, .blocks = true),
    CASE(MATMUL_GROUPED_GRAD, GROUPED_GRAD_DTYPE, grouped_grad),
    CASE_WITH(MATMUL_GROUPED_COOPMAT, 0, grouped_coopmat, .name = "grouped_coopmat",
              .only = TSR_F16, .optional = true),
    CASE_WITH(MATMUL_GROUPED_COOPMAT_BF16, 0, grouped_coopmat, .name = "grouped_coopmat",
              .only = TSR_BF16, .optional = true),
    CASE_WITH(MATMUL_GROUPED_COOPMAT, GROUPED_MATRICES_THREADS, grouped_coopmat_blocks,
              .name = "grouped_coopmat_blocks", .when = GROUPED_MATRICES_BLOCKS, .first = 1,
              .last = 1, .blocks = true, .optional = true),
    CASE(PACK_LARGEST, 1, pack),
    CASE(PACK, 1, pack),
    CASE(UNPACK, 1, pack),
    CASE_WITH(DEQUANTIZE, TSR_QUANT_SPECS + 1, dequantize, .blocks = true),
};
enum { CASES = sizeof cases / sizeof *cases };

static const char *name_of(const shader_case *entry)
{
    return entry->name ? entry->name : tsr__shader_binaries[entry->shader].name;
}

/* The kernel that this thread is testing. `name` is NULL if there is none. */
static _Thread_local struct {
    const char *name;
    tsr_dtype dtype;
    bool used; /* the case has requested a pipeline of this kernel */
} testing;

static tsr_status not_used(const tsr_device *device)
{
    return tsr__fail(TSR_ERR_UNSUPPORTED, "%s computes the test of %s in %s with another kernel",
                     device->info.name, testing.name, tsr_dtype_name(testing.dtype));
}

static tsr_status run_case(tsr_device *device, const shader_case *entry, tsr_dtype dtype, bool *out)
{
    bool right;

    testing.name = name_of(entry);
    testing.dtype = dtype;
    testing.used = false;
    tsr_status status = tsr__case_run(device, entry->run, dtype, &right);
    if (status == TSR_OK && !testing.used)
        status = not_used(device);
    testing.name = NULL;
    if (status == TSR_OK)
        *out = right;
    return status;
}

static tsr_status check_shader(tsr_device *device, const char *name, tsr_dtype dtype, bool *out)
{
    for (int i = 0; i < CASES; i++)
        if (name_of(&cases[i]) == name)
            return run_case(device, &cases[i], dtype, out);
    return TSR_ERR_UNSUPPORTED;
}

/* The dtype for which a pipeline with these specialization constants must have passed its test; 0
 * if it needs no test. */
static tsr_dtype dtype_of(const shader_case *entry, const uint32_t *spec)
{
    const uint32_t value = spec[entry->dtype_at];

    if (entry->only)
        return entry->only;
    if (entry->cached)
        return tsr__dtype_is_cached_block((tsr_dtype)value) ? (tsr_dtype)value : (tsr_dtype)0;
    if (entry->by_bytes)
        return value == 2 ? TSR_F16 : TSR_F32;
    return value == TSR_F32 || value == TSR_F16 || value == TSR_BF16 ? (tsr_dtype)value
                                                                     : (tsr_dtype)0;
}

/* The block format that the first specialization constants describe; 0 if there is none. */
static tsr_dtype format_of(const uint32_t *spec)
{
    const tsr_quant_format *format;
    uint32_t words[TSR_QUANT_SPECS];

    for (int i = 0; (format = tsr_quant_format_at(i)) != NULL; i++) {
        tsr__quant_describe(format->dtype, words);
        if (memcmp(words, spec, sizeof words) == 0)
            return format->dtype;
    }
    return (tsr_dtype)0;
}

static bool counts(const shader_case *entry, int shader, const uint32_t *spec, int spec_count)
{
    if ((int)entry->shader != shader || entry->dtype_at >= spec_count || entry->when >= spec_count)
        return false;
    return entry->when == 0 ||
           (spec[entry->when] >= entry->first && spec[entry->when] <= entry->last);
}

static tsr_status admit_for(tsr_device *device, const shader_case *entry, tsr_dtype dtype)
{
    if (dtype == 0 || tsr__kernel_works(device, name_of(entry), dtype, check_shader))
        return TSR_OK;
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "the kernel %s has failed its self-test for %s on %s; TESSERA_SELF_TEST=off "
                     "uses it nevertheless",
                     name_of(entry), tsr_dtype_name(dtype), device->info.name);
}

/* Is called for each pipeline that the running case requests, and notes whether it is one of the
 * tested kernel. If the case requests a kernel for CPU drivers first, the device computes the
 * operation without the tested kernel; the case then ends before that other kernel is compiled. */
static tsr_status admit_in_check(const tsr_device *device, int shader, const uint32_t *spec,
                                 int spec_count)
{
    for (int i = 0; i < CASES && !testing.used; i++) {
        const shader_case *entry = &cases[i];
        testing.used = name_of(entry) == testing.name && counts(entry, shader, spec, spec_count) &&
                       (dtype_of(entry, spec) == testing.dtype ||
                        (entry->blocks && format_of(spec) == testing.dtype));
    }
    return testing.name && !testing.used && tsr__shader_binaries[shader].for_cpu_drivers
               ? not_used(device)
               : TSR_OK;
}

/* Tests the kernel of a pipeline that is about to be built, unless its result is known, and returns
 * an error if the kernel has failed (`admit` in gpu/device/device.h). */
static tsr_status admit(tsr_device *device, int shader, const uint32_t *spec, int spec_count,
                        bool *settled)
{
    *settled = !tsr__in_check();
    if (!*settled)
        return admit_in_check(device, shader, spec, spec_count);
    for (int i = 0; i < CASES; i++) {
        const shader_case *entry = &cases[i];
        if (!counts(entry, shader, spec, spec_count))
            continue;
        TSR__TRY(admit_for(device, entry, dtype_of(entry, spec)));
        if (entry->blocks)
            TSR__TRY(admit_for(device, entry, format_of(spec)));
    }
    return TSR_OK;
}

static void add_tests(tsr__kernel_tests *list, const shader_case *entry)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16}, cached[] = {TSR_Q8_0, TSR_Q4_0};
    const tsr_quant_format *format;

    for (size_t d = 0; d < sizeof cached / sizeof *cached && entry->cached; d++)
        tsr__kernel_tests_add(list, name_of(entry), cached[d], check_shader);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes && !entry->cached; d++)
        if (!entry->only || entry->only == dtypes[d])
            tsr__kernel_tests_add(list, name_of(entry), dtypes[d], check_shader);
    for (int i = 0; entry->blocks && (format = tsr_quant_format_at(i)) != NULL; i++)
        if (!entry->takes || entry->takes(format->dtype))
            tsr__kernel_tests_add(list, name_of(entry), format->dtype, check_shader);
}

bool tsr__check_at(int i, tsr__check *out)
{
    if (i < 0 || i >= CASES)
        return false;
    *out = (tsr__check){.name = name_of(&cases[i]),
                        .run = cases[i].run,
                        .only = cases[i].only,
                        .blocks = cases[i].blocks,
                        .cached = cases[i].cached,
                        .optional = cases[i].optional};
    return true;
}

void tsr__self_test_all(tsr_device *device)
{
    tsr__kernel_tests list = {0};

    for (int i = 0; i < CASES; i++)
        add_tests(&list, &cases[i]);
    tsr__matmul_add_tests(device, &list);
    tsr__kernel_tests_run(device, &list);
}

bool tsr__self_test_kernel(tsr_device *device, const char *name, tsr_dtype dtype)
{
    for (int i = 0; i < CASES; i++)
        if (strcmp(name_of(&cases[i]), name) == 0)
            return tsr__kernel_works(device, name_of(&cases[i]), dtype, check_shader);
    return true;
}

static tsr_status check_mode(void)
{
    tsr__self_test_mode mode;

    return tsr__self_test_mode_wanted(&mode);
}

static void start(tsr_device *device)
{
    tsr__self_test_mode mode;

    if (tsr__self_test_mode_wanted(&mode) != TSR_OK || mode == TSR__SELF_TEST_OFF)
        return;
    device->self_tested = true;
    device->admit = admit;
    if (mode == TSR__SELF_TEST_FULL)
        tsr__self_test_all(device);
}

const tsr__device_self_tests tsr__device_self_tests_table = {
    .check_mode = check_mode,
    .start = start,
};
