/* Checks the code that compilers for real GPUs make of the shaders, without a GPU. RADV compiles
 * for the family that RADV_FORCE_FAMILY names and reports registers. Spilled registers or scratch
 * memory mean that a tile is too large or that an array is indexed at run time. Either costs most
 * of the speed, so neither is allowed. Without the variable, the driver is NVK, for NVIDIA;
 * CONTRIBUTING.md says how to use it without such a GPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device/instance.h"
#include "gpu/matmul/choose_kernel.h"
#include "gpu/matmul/kernels/kernels.h"
#include "gpu/pipeline/pipeline.h"
#include "isa/family.h"
#include "shaders/params/matmul.h"
#include "support/check_main.h"

static tsr_device *radv;

static void open_radv(void)
{
    isa_choose_family();
    ck_assert_ok(tsr__device_open_to_compile(tsr_device_params(.cache_in_memory = true), &radv));
    /* Without statistics there would be nothing to check. */
    ck_assert(tsr_device_get_info(radv)->pipeline_statistics);
    ck_assert(tsr__pipelines_capture(radv, true) == TSR_OK);
}

static void open_radv_packed(void)
{
    isa_choose_family();
    ck_assert_ok(tsr__device_open_to_compile(
        tsr_device_params(.cache_in_memory = true, .force_packed_storage = true), &radv));
    ck_assert(tsr__pipelines_capture(radv, true) == TSR_OK);
}

static void close_radv(void)
{
    tsr_device_close(&radv);
    ck_assert_uint_eq(tsr__validation_messages(),
                      0); /* messages exist only with TESSERA_VALIDATION=1 */
}

typedef struct usage {
    double vgprs, sgprs, lds, spilled, scratch;
    int found; /* number of statistics that the driver reported */
} usage;

static void take(void *user, const char *name, double value)
{
    usage *u = user;

    if (strcmp(name, "VGPRs") == 0)
        u->vgprs = value, u->found++;
    else if (strcmp(name, "SGPRs") == 0)
        u->sgprs = value, u->found++;
    else if (strcmp(name, "LDS size") == 0)
        u->lds = value, u->found++;
    else if (strcmp(name, "Spilled SGPRs") == 0 || strcmp(name, "Spilled VGPRs") == 0)
        u->spilled += value, u->found++;
    else if (strcmp(name, "Scratch size") == 0)
        u->scratch = value, u->found++;
}

/* Reads a statistic of NVK, which does not report shared memory, and has only one kind of
 * registers. */
static void take_nvk(void *user, const char *name, double value)
{
    usage *u = user;

    if (strcmp(name, "Number of GPRs") == 0)
        u->vgprs = value, u->found++;
    else if (strcmp(name, "Spills to memory") == 0 || strcmp(name, "Fills from memory") == 0)
        u->spilled += value, u->found++;
    else if (strcmp(name, "SLM size") == 0)
        u->scratch = value, u->found++;
}

static int asked, built, bad;

/* With TEST_PART=0/2 and 1/2, two processes share the work. With TEST_NAME, which is used by hand,
 * only kernels with these characters in their names are compiled. */
static bool is_ours(int number, const char *name)
{
    const char *text = getenv("TEST_PART"), *wanted = getenv("TEST_NAME");
    int part = 0, parts = 1;

    if (wanted && !strstr(name, wanted))
        return false;
    ck_assert(!text || (sscanf(text, "%d/%d", &part, &parts) == 2 && part < parts));
    return number % parts == part;
}

static void compile(const char *name, tsr__shader shader, const uint32_t *spec, int spec_count)
{
    tsr__pipeline *pipeline;
    usage u = {0};

    if (!is_ours(asked++, name))
        return;
    ck_assert_ok(tsr__pipeline_get(radv, shader, spec, spec_count, &pipeline));
    bool nvk = strcmp(tsr_device_get_info(radv)->driver_name, "NVK") == 0;
    ck_assert_ok(
        tsr__pipeline_statistics(radv, tsr__pipeline_handle(pipeline), nvk ? take_nvk : take, &u));
    tsr__pipeline_release(pipeline);
    ck_assert_int_eq(u.found, nvk ? 4 : 6);
    bool wrong = u.spilled > 0 || u.scratch > 0;
    printf("# %-44s %3.0f VGPRs %3.0f SGPRs %6.0f B LDS%s", name, u.vgprs, u.sgprs, u.lds,
           wrong ? "" : "\n");
    if (wrong)
        printf(", %.0f spilled, %.0f B scratch  <-- not allowed\n", u.spilled, u.scratch);
    fflush(stdout);
    built++;
    bad += wrong;
}

/* Returns true if the driver has the cooperative matrices or dot products that the shader uses, or
 * if the shader uses none. */
static bool device_knows(tsr__shader shader)
{
    const tsr_device_info *info = tsr_device_get_info(radv);

    switch (shader) {
    case TSR__SHADER_MATMUL_DOT2:
        return radv->dot2;
    case TSR__SHADER_MATMUL_BLOCKS_INT8:
        return radv->int8_dot;
    case TSR__SHADER_MATMUL_COOPMAT:
    case TSR__SHADER_MATMUL_GROUPED_COOPMAT:
    case TSR__SHADER_ATTENTION_COOPMAT:
    case TSR__SHADER_DELTA_SCAN_COOPMAT:
        return info->coopmat;
    case TSR__SHADER_MATMUL_COOPMAT_BF16:
    case TSR__SHADER_MATMUL_GROUPED_COOPMAT_BF16:
    case TSR__SHADER_ATTENTION_COOPMAT_BF16:
        return info->coopmat_bf16;
    case TSR__SHADER_MATMUL_COOPMAT2:
    case TSR__SHADER_ATTENTION_COOPMAT2:
        return info->coopmat2;
    case TSR__SHADER_MATMUL_COOPMAT2_BF16:
    case TSR__SHADER_ATTENTION_COOPMAT2_BF16:
        return info->coopmat2_bf16;
    default:
        return true;
    }
}

static void compile_defaults(void)
{
    for (int i = 0; i < TSR__SHADER_COUNT; i++)
        if (tsr__shader_binaries[i].variant[radv->storage].code && device_knows((tsr__shader)i))
            compile(tsr__shader_binaries[i].name, (tsr__shader)i, NULL, 0);
    ck_assert(built > 0 || getenv("TEST_NAME"));
    ck_assert_int_eq(bad, 0);
}

START_TEST(every_shader_at_its_defaults)
{
    compile_defaults();
}
END_TEST

static void compile_variant(void *user, const tsr__matmul_config *config,
                            const tsr__matmul_variant *variant)
{
    (void)user;
    char name[64];
    tsr__shader shader;
    uint32_t spec[TSR__MATMUL_SPEC_MAX];
    int count = config->family->pipeline(config, variant, &shader, spec);

    if (!tsr__shader_binaries[shader].variant[radv->storage].code)
        return;
    const bool terms = config->family == &tsr__matmul_coopmat && variant->rows > 0;
    snprintf(name, sizeof name, "%s %s×%s loads %u,%u %s %u", config->name,
             tsr_dtype_name(variant->a_dtype), tsr_dtype_name(variant->b_dtype), variant->a_load,
             variant->b_load, terms ? "terms" : "rows", variant->rows);
    compile(name, shader, spec, count);
}

/* Compiles the kernels with cooperative matrices for narrowed operands, whose terms are in shared
 * memory together: f32 features with f16 weights (two terms) and with f32 or quantised ones (two of
 * each). */
static void compile_narrowed(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    for (uint32_t b_terms = 0; b_terms <= 2; b_terms += 2) {
        tsr_layout la, lb, ly;
        tsr__matmul_problem problem;
        ck_assert_ok(tsr_layout_init(TSR_F16, 2, (int64_t[]){512, 2048}, &la));
        ck_assert_ok(tsr_layout_init(TSR_F16, 2, (int64_t[]){2048, 2048}, &lb));
        ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){512, 2048}, &ly));
        ck_assert_ok(tsr__matmul_problem_init(&ly, &la, &lb, NULL,
                                              tsr_matmul_params(.transpose_b = true), &problem));
        problem.a_terms = 2;
        problem.b_terms = b_terms;
        if (!tsr__matmul_config_fits(config, device, &problem))
            continue;
        tsr__matmul_variant variant = tsr__matmul_variant_for(config, device, &problem, true);
        variant.mode = TSR_DT_F32 << TSR_MM_Y_DTYPE_SHIFT | TSR_MM_A_SCALES |
                       (b_terms > 0 ? TSR_MM_B_SCALES : 0);
        variant.rows = variant.a_terms * 10 + variant.b_terms; /* only for the name */
        compile_variant(NULL, config, &variant);
    }
}

/* Prints which kernels are not compiled because a compiler or a driver lacks a feature, since the
 * real GPU may have it. */
static void say_without_coopmat(const char *dtype, bool has, int used)
{
    if (used < 0)
        printf("# NOT COMPILED: kernels with cooperative matrices of %s, which %s\n", dtype,
               has ? "no kernel can use here" : "this driver does not support on this GPU");
    fflush(stdout);
}

START_TEST(every_matmul_the_chooser_could_use)
{
    const tsr_device_info *info = tsr_device_get_info(radv);
    tsr__matmul_device device = tsr__matmul_device_of(radv);
    const tsr__matmul_config *config;
    int coopmat = 0;

    for (int i = 0; (config = tsr__matmul_config_at(i)) != NULL; i++)
        if (tsr__matmul_config_runs(config, &device)) {
            tsr__matmul_each_variant(config, &device, compile_variant, NULL);
            coopmat += config->family == &tsr__matmul_coopmat;
            if (config->family == &tsr__matmul_coopmat)
                compile_narrowed(config, &device);
        }
    say_without_coopmat("f16", info->coopmat, info->coopmat_used);
    say_without_coopmat("bf16", info->coopmat_bf16, info->coopmat_bf16_used);
    ck_assert(built > 0 || getenv("TEST_NAME"));
    ck_assert_int_eq(bad, 0);
    /* If the GPU has cooperative matrices, the driver must compile all of these kernels. Three of
     * them are for NVIDIA only. */
    int all = info->vendor_id == TSR__VENDOR_NVIDIA ? 10 : 7;
    ck_assert_int_eq(coopmat, info->coopmat_used < 0 && info->coopmat_bf16_used < 0 ? 0 : all);
}
END_TEST

/* Null hardware reports an infinite period. */
START_TEST(timestamps_have_a_finite_period)
{
    ck_assert(isfinite(tsr_device_get_info(radv)->timestamp_period_ns));
}
END_TEST

TESTS(radv)
{
    tcase_add_checked_fixture(tests, open_radv, close_radv);
    tcase_add_test(tests, every_shader_at_its_defaults);
    tcase_add_test(tests, every_matmul_the_chooser_could_use);
    tcase_add_test(tests, timestamps_have_a_finite_period);
}

TESTS(radv_packed)
{
    tcase_add_checked_fixture(tests, open_radv_packed, close_radv);
    tcase_add_test(tests, every_shader_at_its_defaults);
}
