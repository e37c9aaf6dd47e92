/* Tests the choice of cooperative matrices and of the kernel that uses them, for invented
 * devices. */
#include <stdio.h>
#include <string.h>

#include "gpu/device/coopmat.h"
#include "gpu/matmul/choose_kernel.h"
#include "gpu/matmul/kernels/kernels.h"
#include "shaders/params/matmul.h"
#include "support/check_main.h"

/* The choice of a shape of cooperative matrices ------------------------------------------------ */

static tsr__capabilities capabilities;
static tsr__device_facts facts;
static tsr_device_info *const info = &facts.info;

static void add_shape(uint32_t m, uint32_t n, uint32_t k, const char *operands, const char *sums)
{
    facts.coopmats[info->coopmat_count++] = (tsr_coopmat_shape){.m = m,
                                                                .n = n,
                                                                .k = k,
                                                                .a = operands,
                                                                .b = operands,
                                                                .c = sums,
                                                                .result = sums,
                                                                .subgroup_scope = true};
}

/* Makes a device that meets all requirements. */
static void make_device(void)
{
    capabilities = (tsr__capabilities){.driver = VK_DRIVER_ID_NVIDIA_PROPRIETARY,
                                       .int16 = true,
                                       .vulkan_memory_model = true,
                                       .subgroup_size_control = true,
                                       .subgroup_sizes_in_compute = true,
                                       .full_subgroups = true};
    memset(&facts, 0, sizeof facts);
    info->vendor_id = 0x10de;
    info->coopmat = info->fp16 = info->storage16 = info->storage8 = true;
    info->coopmat_bf16 = info->int64 = true;
    info->subgroup_size = info->subgroup_size_min = info->subgroup_size_max = 32;
    add_shape(16, 8, 16, "f16", "f32");
    add_shape(16, 16, 16, "f16", "f16");
    add_shape(16, 16, 16, "f16", "f32");
    add_shape(16, 16, 16, "bf16", "f32");
    add_shape(16, 8, 8, "f16", "f32");
    add_shape(32, 32, 32, "s8", "s32");
    add_shape(16, 16, 32, "bf16", "bf16");
}

static int used(void)
{
    info->coopmat_used = info->coopmat_bf16_used = 99;
    tsr__coopmat_choose(&capabilities, info);
    ck_assert_int_eq(info->coopmat_used < 0 && info->coopmat_bf16_used < 0,
                     info->coopmat_subgroup_size == 0);
    return info->coopmat_used;
}

START_TEST(largest_f16_shape_with_f32_sums)
{
    ck_assert_int_eq(used(), 2);
    ck_assert_uint_eq(info->coopmat_subgroup_size, 32);
    facts.coopmats[2].subgroup_scope = false;
    ck_assert_int_eq(used(), 0);
    facts.coopmats[0].saturating = true;
    ck_assert_int_eq(used(), 4);
    facts.coopmats[4].n = 12; /* tiles are not multiples of 12 */
    ck_assert_int_eq(used(), -1);
    info->coopmat_count = 0;
    ck_assert_int_eq(used(), -1);
}
END_TEST

START_TEST(largest_bf16_shape_with_f32_sums)
{
    ck_assert_int_eq(used(), 2);
    ck_assert_int_eq(info->coopmat_bf16_used, 3);
    add_shape(32, 8, 16, "bf16", "f32"); /* not larger than shape 3 */
    ck_assert_int_eq(used(), 2);
    ck_assert_int_eq(info->coopmat_bf16_used, 3);
    add_shape(32, 32, 16, "bf16", "f32");
    ck_assert_int_eq(used(), 2);
    ck_assert_int_eq(info->coopmat_bf16_used, 8);
}
END_TEST

/* bf16 needs these two features; f16 does not. Its kernels also read and write f16, so they need
 * all that f16 needs. */
START_TEST(bf16_has_its_own_requirements)
{
    bool *needs[] = {&facts.info.coopmat_bf16, &capabilities.int16};

    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        *needs[i] = false;
        ck_assert_int_eq(used(), 2);
        ck_assert_int_eq(info->coopmat_bf16_used, -1);
        *needs[i] = true;
    }
}
END_TEST

/* Removes one requirement after the other; each time no matrices may be used. */
START_TEST(none_if_a_requirement_is_missing)
{
    bool *needs[] = {&facts.info.coopmat,
                     &facts.info.storage16,
                     &facts.info.storage8,
                     &facts.info.int64,
                     &capabilities.vulkan_memory_model,
                     &capabilities.subgroup_size_control,
                     &capabilities.full_subgroups};

    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        ck_assert_int_eq(used(), 2);
        *needs[i] = false;
        ck_assert_int_eq(used(), -1);
        ck_assert_int_eq(info->coopmat_bf16_used, -1);
        *needs[i] = true;
    }
    info->fp16 = false;
    ck_assert_int_eq(used(), -1);
    ck_assert_int_eq(info->coopmat_bf16_used, -1);
}
END_TEST

START_TEST(size_of_subgroups)
{
    capabilities.subgroup_sizes_in_compute = false; /* harmless, because there is only one size */
    ck_assert_int_eq(used(), 2);
    ck_assert_uint_eq(info->coopmat_subgroup_size, 32);
    info->subgroup_size_min = 16;
    ck_assert_int_eq(used(), -1);
    capabilities.subgroup_sizes_in_compute = true;
    info->subgroup_size_min = 8;
    info->subgroup_size_max = 32;
    ck_assert_int_eq(used(), 2);
    ck_assert_uint_eq(info->coopmat_subgroup_size, 8);
}
END_TEST

/* The values that NVIDIA's H200 reports. */
static const tsr__coopmat2 workgroup_matrices = {
    .max_dimension = 1024,
    .f16 = {{16, 16, 16}, {16, 16, 16}, {32, 16, 16}, {32, 32, 16}},
    .bf16 = {{16, 16, 16}, {16, 16, 16}, {32, 16, 16}, {32, 32, 16}},
};

/* Matrices that a workgroup shares need all that matrices of subgroups need, and more. */
START_TEST(matrices_of_workgroups)
{
    bool *needs[] = {&capabilities.has_coopmat2, &facts.info.coopmat, &facts.info.int64};

    used();
    ck_assert(!info->coopmat2 && !info->coopmat2_bf16);
    capabilities.has_coopmat2 = true;
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        capabilities.coopmat2 = workgroup_matrices;
        used();
        ck_assert(info->coopmat2 && info->coopmat2_bf16);
        ck_assert_mem_eq(&capabilities.coopmat2, &workgroup_matrices, sizeof workgroup_matrices);
        *needs[i] = false;
        used();
        ck_assert(!info->coopmat2 && !info->coopmat2_bf16);
        ck_assert_uint_eq(capabilities.coopmat2.f16[3].m, 0);
        ck_assert_uint_eq(capabilities.coopmat2.bf16[3].m, 0);
        *needs[i] = true;
    }
    capabilities.coopmat2 = workgroup_matrices;
    capabilities.coopmat_faulty = true;
    used();
    ck_assert(!info->coopmat2 && !info->coopmat2_bf16);
    capabilities.coopmat_faulty = false;
    capabilities.coopmat2 = workgroup_matrices;
    capabilities.int16 = false;
    used();
    ck_assert(info->coopmat2 && !info->coopmat2_bf16);
}
END_TEST

/* A driver with more shapes than the library has room for: the rest is left out, and the log says
 * so. */
static int warnings;

static void count_warning(void *user, tsr_log_level level, const char *text)
{
    (void)user;
    ck_assert_int_eq(level, TSR_LOG_WARNING);
    ck_assert_ptr_nonnull(strstr(text, "only the first "));
    warnings++;
}

static VKAPI_ATTR VkResult VKAPI_CALL list_shapes(VkPhysicalDevice physical, uint32_t *count,
                                                  VkCooperativeMatrixPropertiesKHR *out)
{
    (void)physical;
    for (uint32_t i = 0; i < *count; i++) {
        ck_assert_int_eq(out[i].sType, VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR);
        out[i].MSize = i + 1;
    }
    return VK_INCOMPLETE;
}

static VKAPI_ATTR void VKAPI_CALL no_properties(VkPhysicalDevice physical,
                                                VkPhysicalDeviceProperties2 *out)
{
    VkPhysicalDeviceCooperativeMatrix2PropertiesNV *limits = out->pNext;

    (void)physical;
    limits->cooperativeMatrixWorkgroupScopeMaxWorkgroupSize = 1024;
    limits->cooperativeMatrixFlexibleDimensionsMaxDimension = 512;
    limits->cooperativeMatrixWorkgroupScopeReservedSharedMemory = 4096;
}

static VKAPI_ATTR VkResult VKAPI_CALL
list_kinds(VkPhysicalDevice physical, uint32_t *count,
           VkCooperativeMatrixFlexibleDimensionsPropertiesNV *out)
{
    (void)physical;
    ck_assert_uint_gt(*count, 0);
    out[*count - 1] = (VkCooperativeMatrixFlexibleDimensionsPropertiesNV){
        .MGranularity = 32,
        .NGranularity = 16,
        .KGranularity = 8,
        .AType = VK_COMPONENT_TYPE_FLOAT16_KHR,
        .BType = VK_COMPONENT_TYPE_FLOAT16_KHR,
        .CType = VK_COMPONENT_TYPE_FLOAT32_KHR,
        .ResultType = VK_COMPONENT_TYPE_FLOAT32_KHR,
        .scope = VK_SCOPE_WORKGROUP_KHR,
        .workgroupInvocations = 128,
    };
    return VK_INCOMPLETE;
}

START_TEST(lists_that_are_too_long)
{
    tsr__instance instance = {0};
    instance.vk.GetPhysicalDeviceCooperativeMatrixPropertiesKHR = list_shapes;
    instance.vk.GetPhysicalDeviceProperties2 = no_properties;
    instance.vk.GetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV = list_kinds;
    warnings = 0;
    tsr_log_set(count_warning, NULL, TSR_LOG_WARNING);
    ck_assert_ok(tsr__probe_coopmat(&instance, NULL, &facts));
    ck_assert_int_eq(warnings, 1);
    ck_assert_int_eq(info->coopmat_count, TSR__MAX_COOPMAT_SHAPES);
    ck_assert_uint_eq(facts.coopmats[TSR__MAX_COOPMAT_SHAPES - 1].m, TSR__MAX_COOPMAT_SHAPES);
    capabilities.coopmat2_features.cooperativeMatrixConversions = VK_TRUE;
    ck_assert_ok(tsr__probe_coopmat2(&instance, &capabilities));
    ck_assert_int_eq(warnings, 2);
    tsr_log_set(NULL, NULL, TSR_LOG_ERROR);
    const tsr__coopmat2 *shared = &capabilities.coopmat2;
    ck_assert_uint_eq(shared->max_dimension, 512);
    ck_assert_uint_eq(shared->reserved_shared_bytes, 4096);
    ck_assert(!shared->converts); /* it also takes functions for each element */
    ck_assert_uint_eq(shared->f16[2].m, 32);
    ck_assert_uint_eq(shared->f16[2].n, 16);
    ck_assert_uint_eq(shared->f16[2].k, 8);
    ck_assert_uint_eq(shared->f16[3].m, 0);
    capabilities.coopmat2_features.cooperativeMatrixPerElementOperations = VK_TRUE;
    ck_assert_ok(tsr__probe_coopmat2(&instance, &capabilities));
    ck_assert(shared->converts);
}
END_TEST

/* The choice of a kernel ----------------------------------------------------------------------- */

#define VENDOR_AMD 0x1002
#define VENDOR_INTEL 0x8086

static tsr__matmul_device device; /* like an NVIDIA GPU */

static void make_gpu(void)
{
    device = (tsr__matmul_device){.traits = tsr__traits_of(TSR__CLASS_GPU),
                                  .vendor_id = 0x10de,
                                  .max_invocations = 1024,
                                  .max_shared_bytes = 49152,
                                  .subgroup_size = 32,
                                  .int64 = true,
                                  .coopmat = {.m = 16, .n = 16, .k = 16},
                                  .coopmat_bf16 = {.m = 16, .n = 16, .k = 8},
                                  .coopmat_subgroup_size = 32,
                                  .max_subgroups = 32};
}

static tsr__matmul_problem product(tsr_dtype a, tsr_dtype b, int64_t m, int64_t k, int64_t n)
{
    tsr_layout la, lb, ly;
    tsr__matmul_problem problem;

    ck_assert_ok(tsr_layout_init(a, 2, (int64_t[]){m, k}, &la));
    ck_assert_ok(tsr_layout_init(b, 2, (int64_t[]){n, k}, &lb));
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){m, n}, &ly));
    ck_assert_ok(tsr__matmul_problem_init(&ly, &la, &lb, NULL,
                                          tsr_matmul_params(.transpose_b = true), &problem));
    return problem;
}

static const char *chosen(tsr_dtype dtype, int64_t m, int64_t k, int64_t n)
{
    tsr__matmul_problem problem = product(dtype, dtype, m, k, n);
    tsr__matmul_plan plan;

    ck_assert_ok(tsr__matmul_choose(&device, NULL, &problem, NULL, &plan));
    ck_assert(tsr__matmul_can_choose(&device, plan.config));
    return plan.config->name;
}

static bool can_choose(const char *name)
{
    return tsr__matmul_can_choose(&device, tsr__matmul_config_named(name));
}

/* A full self-test leaves out configurations that are used only if a tuning names them. chosen()
 * checks that it leaves out nothing else. */
START_TEST(configurations_that_only_tunings_choose)
{
    static const char *const tuned[] = {"tiled-m-k32", "tiled-32x64", "coopmat2-128x128",
                                        "tiled-m8",    "coopmat-xl2", "coopmat-2xl"};

    for (size_t i = 0; i < sizeof tuned / sizeof *tuned; i++)
        ck_assert_msg(!can_choose(tuned[i]), "%s", tuned[i]);
    ck_assert(!can_choose("pairs-l"));
    device.dot2 = true;
    ck_assert(can_choose("pairs-l"));
    ck_assert_str_eq(chosen(TSR_F32, 40, 40, 40), "tiled-s");
    device.traits = tsr__traits_of(TSR__CLASS_LAVAPIPE);
    ck_assert(!can_choose("pairs-l") && !can_choose("tiled-l") && !can_choose("vector-k"));
    ck_assert(can_choose("tiled-s") && can_choose("wide"));
    (void)chosen(TSR_F32, 40, 40, 40);
    (void)chosen(TSR_F16, 2, 2, 2);
    device.traits = tsr__traits_of(TSR__CLASS_CPU);
    (void)chosen(TSR_F32, 40, 40, 40);
    (void)chosen(TSR_F32, 2, 40, 40);
}
END_TEST

START_TEST(large_products_of_f16)
{
    device.vendor_id = VENDOR_AMD;
    ck_assert_str_eq(chosen(TSR_F16, 4096, 4096, 4096), "coopmat-l");
    /* With the large tile there would be only 32 tiles. */
    ck_assert_str_eq(chosen(TSR_F16, 512, 1024, 1024), "coopmat-s");
    /* m is half of a large tile. */
    ck_assert_str_eq(chosen(TSR_F16, 64, 4096, 65536), "coopmat-s");
    ck_assert_str_eq(chosen(TSR_F16, 32, 32, 32), "coopmat-s");
    ck_assert_str_eq(chosen(TSR_F16, 31, 32, 32), "tiled-s");
    ck_assert_str_eq(chosen(TSR_F16, 32, 32, 31), "tiled-s");
    ck_assert_str_eq(chosen(TSR_F16, 32, 31, 32), "tiled-s");
    ck_assert_str_eq(chosen(TSR_F16, 1, 4096, 4096), "vector-k");
}
END_TEST

/* The library chooses the largest tile that gives the GPU enough workgroups. If a long k is
 * divided into ranges, each range of a tile counts. */
START_TEST(products_of_f16_on_nvidia)
{
    ck_assert_str_eq(chosen(TSR_F16, 4096, 4096, 4096), "coopmat-xl");
    ck_assert_str_eq(chosen(TSR_F16, 2048, 2048, 2048), "coopmat-xl");
    ck_assert_str_eq(chosen(TSR_F16, 512, 1024, 4096), "coopmat-l64");
    ck_assert_str_eq(chosen(TSR_F16, 128, 4096, 4096), "coopmat-m"); /* 128 tiles */
    ck_assert_str_eq(chosen(TSR_F16, 1024, 1024, 1024), "coopmat-m");
    ck_assert_str_eq(chosen(TSR_F16, 512, 512, 512), "coopmat-32");
    ck_assert_str_eq(chosen(TSR_F16, 256, 256, 256), "coopmat-16");
    ck_assert_str_eq(chosen(TSR_F16, 32, 4096, 8192), "coopmat-32");
    ck_assert_str_eq(chosen(TSR_F16, 16, 4096, 11008), "coopmat-16");
    ck_assert_str_eq(chosen(TSR_F16, 9, 64, 64), "coopmat-16");
    ck_assert_str_eq(chosen(TSR_F16, 8, 4096, 4096), "vector-k");
    ck_assert_str_eq(chosen(TSR_F16, 4096, 4096, 15), "tiled-s");
    ck_assert_str_eq(chosen(TSR_F16, 4096, 15, 4096), "tiled-m");
}
END_TEST

START_TEST(nine_to_sixteen_rows_of_f32)
{
    ck_assert_str_eq(chosen(TSR_F32, 8, 4096, 4096), "vector-k");
    ck_assert_str_eq(chosen(TSR_F32, 9, 4096, 4096), "vector-k16");
    ck_assert_str_eq(chosen(TSR_F32, 16, 4096, 4096), "vector-k16");
    ck_assert_str_eq(chosen(TSR_F32, 17, 4096, 4096), "tiled-s");
}
END_TEST

/* Up to four rows are one dispatch, whichever way b is stored. */
START_TEST(few_rows_do_not_split_k)
{
    for (int64_t m = 1; m <= 5; m++)
        for (int transposed = 0; transposed < 2; transposed++) {
            tsr__matmul_problem p = product(TSR_F32, TSR_F16, m, 4096, 512);
            tsr__matmul_plan plan;
            if (!transposed) { /* b is contiguous along its columns */
                p.b.row = 512;
                p.b.col = 1;
            }
            ck_assert_ok(tsr__matmul_choose(&device, NULL, &p, NULL, &plan));
            ck_assert_msg((plan.splits == 1) == (m <= 4), "%lld rows: k in %u ranges", (long long)m,
                          (unsigned)plan.splits);
            ck_assert_str_eq(plan.config->name, transposed ? "vector-k"
                                                : m <= 4   ? "vector-col16"
                                                           : "vector-col");
        }
    tsr__matmul_problem wide = product(TSR_F32, TSR_F16, 1, 512, 1 << 20);
    tsr__matmul_plan plan;
    wide.b.row = 1 << 20;
    wide.b.col = 1;
    ck_assert_ok(tsr__matmul_choose(&device, NULL, &wide, NULL, &plan));
    ck_assert_str_eq(plan.config->name, "vector-col");
}
END_TEST

/* Subgroups add up sums only if each workgroup consists of whole subgroups. */
START_TEST(sums_of_subgroups)
{
    ck_assert_uint_eq(tsr__matmul_subgroup_of(&device, 64), 0);
    device.subgroup_sums = true;
    device.subgroup_size_min = 8;
    device.subgroup_size_max = 32;
    ck_assert_uint_eq(tsr__matmul_subgroup_of(&device, 64), 8);
    ck_assert_uint_eq(tsr__matmul_subgroup_of(&device, 48), 0);
    device.subgroup_size_min = 2;
    ck_assert_uint_eq(tsr__matmul_subgroup_of(&device, 64), 0);
    device.subgroup_size_min = device.subgroup_size_max = 32;
    device.traits = tsr__traits_of(TSR__CLASS_LAVAPIPE);
    ck_assert_uint_eq(tsr__matmul_subgroup_of(&device, 64), 0);
}
END_TEST

START_TEST(long_k_gives_large_tiles_work)
{
    ck_assert_str_eq(chosen(TSR_F32, 128, 4096, 4096), "tiled-l"); /* 32 tiles, k in 4 ranges */
    ck_assert_str_eq(chosen(TSR_F32, 1024, 1024, 1024), "tiled-m");
}
END_TEST

/* Tiles for AMD's GPUs. The large tile needs more registers than GCN has. */
START_TEST(tiles_for_amd)
{
    device.vendor_id = VENDOR_AMD;
    device.subgroup_size_min = 32;
    ck_assert_str_eq(chosen(TSR_F32, 4096, 4096, 4096), "tiled-l");
    ck_assert_str_eq(chosen(TSR_F32, 1024, 1024, 1024), "tiled-m8");
    ck_assert_str_eq(chosen(TSR_F32, 1023, 1023, 1023), "tiled-m"); /* no loads of vectors */
    tsr__matmul_problem mixed = product(TSR_F32, TSR_F32, 4096, 4096, 4096);
    tsr__matmul_plan plan;
    mixed.b.offset = 1; /* only a can be loaded as vectors */
    ck_assert_ok(tsr__matmul_choose(&device, NULL, &mixed, NULL, &plan));
    ck_assert_str_eq(plan.config->name, "tiled-m8");
    ck_assert_str_eq(chosen(TSR_F32, 256, 256, 256), "tiled-s");
    device.subgroup_size_min = 64;
    ck_assert_str_eq(chosen(TSR_F32, 4096, 4096, 4096), "tiled-m8");
    ck_assert_str_eq(chosen(TSR_F32, 1023, 1023, 1023), "tiled-m");
}
END_TEST

/* Larger tiles would need more registers than Intel's GPUs have. */
START_TEST(tiles_for_intel)
{
    device.vendor_id = VENDOR_INTEL;
    device.coopmat = device.coopmat_bf16 = (tsr_coopmat_shape){.m = 8, .n = 16, .k = 16};
    device.coopmat_subgroup_size = device.subgroup_size_min = 16;
    ck_assert_str_eq(chosen(TSR_F32, 4096, 4096, 4096), "tiled-m8");
    ck_assert_str_eq(chosen(TSR_F32, 1023, 1023, 1023), "tiled-m"); /* no loads of vectors */
    ck_assert_str_eq(chosen(TSR_F16, 4096, 4096, 4096), "coopmat-s256");
    ck_assert_str_eq(chosen(TSR_BF16, 4096, 4096, 4096), "coopmat-s256");
    ck_assert_str_eq(chosen(TSR_F16, 31, 4096, 4096), "tiled-s");
    device.coopmat = device.coopmat_bf16 = (tsr_coopmat_shape){0};
    device.subgroup_size_min = 8;
    ck_assert_str_eq(chosen(TSR_F16, 4096, 4096, 4096), "tiled-m8");
}
END_TEST

/* A product that gives a large GPU too few large tiles may give a small GPU enough of them. */
START_TEST(tiles_for_a_small_gpu)
{
    device.vendor_id = VENDOR_AMD;
    device.subgroup_size_min = 32;
    ck_assert_str_eq(chosen(TSR_F32, 512, 512, 512), "tiled-s");
    device.processors = 80;
    ck_assert_str_eq(chosen(TSR_F32, 512, 512, 512), "tiled-s");
    device.processors = 8; /* with 8 processors 13 tiles are enough, and there are 16 */
    ck_assert_str_eq(chosen(TSR_F32, 512, 512, 512), "tiled-l");
    ck_assert_str_eq(chosen(TSR_F32, 256, 256, 256), "tiled-m8");
    ck_assert_str_eq(chosen(TSR_F16, 512, 512, 512), "coopmat-l");
}
END_TEST

START_TEST(products_of_bf16)
{
    tsr__matmul_problem problem = product(TSR_BF16, TSR_BF16, 4096, 4096, 4096);
    uint32_t spec[TSR__MATMUL_SPEC_MAX];
    tsr__matmul_plan plan;
    tsr__shader shader;

    ck_assert_ok(tsr__matmul_choose(&device, NULL, &problem, NULL, &plan));
    ck_assert_str_eq(plan.config->name, "coopmat-xl");
    plan.config->family->pipeline(plan.config, &plan.variant, &shader, spec);
    ck_assert_int_eq(shader, TSR__SHADER_MATMUL_COOPMAT_BF16);
    ck_assert_uint_eq(spec[8], 8); /* the k of a bf16 fragment, not of an f16 one */
    device.coopmat = (tsr_coopmat_shape){0};
    ck_assert_str_eq(chosen(TSR_BF16, 4096, 4096, 4096), "coopmat-xl");
    ck_assert_str_eq(chosen(TSR_F16, 4096, 4096, 4096), "tiled-l");
    problem = product(TSR_F16, TSR_F16, 64, 64, 64);
    ck_assert_error(
        tsr__matmul_choose(
            &device, NULL, &problem,
            &(tsr__matmul_override){.config = tsr__matmul_config_at(TSR__MATMUL_COOPMAT_S)}, &plan),
        TSR_ERR_UNSUPPORTED,
        "matmul: the kernel configuration coopmat-s cannot compute this product on this device");
}
END_TEST

/* On AMD's GPUs, two workgroups should fit in the shared memory of a processor. With bf16, the
 * sums need shared memory beside that of the operands. */
START_TEST(fragments_that_are_stored_together)
{
    const tsr__matmul_config *config = tsr__matmul_config_named("coopmat-l");

    device.coopmat = device.coopmat_bf16 = (tsr_coopmat_shape){.m = 16, .n = 16, .k = 16};
    device.coopmat_subgroup_size = 32;
    device.max_shared_bytes = 65536;
    device.vendor_id = TSR__VENDOR_AMD;
    ck_assert_uint_eq(tsr__matmul_fragment_for(config, &device, TSR_F16).staged, 2);
    ck_assert_uint_eq(tsr__matmul_fragment_for(config, &device, TSR_BF16).staged, 1);
    device.vendor_id = TSR__VENDOR_NVIDIA;
    ck_assert_uint_eq(tsr__matmul_fragment_for(config, &device, TSR_BF16).staged, 2);
    device.max_shared_bytes = 32768; /* 36864 bytes would be needed */
    ck_assert_uint_eq(tsr__matmul_fragment_for(config, &device, TSR_BF16).staged, 1);
}
END_TEST

START_TEST(other_dtypes_do_not_use_them)
{
    static const tsr_dtype mixed[][2] = {
        {TSR_F16, TSR_F32}, {TSR_BF16, TSR_F32}, {TSR_F16, TSR_BF16}, {TSR_BF16, TSR_F16}};
    tsr__matmul_plan plan;

    ck_assert_str_eq(chosen(TSR_F32, 4096, 4096, 4096), "tiled-l");
    for (size_t i = 0; i < sizeof mixed / sizeof *mixed; i++) {
        tsr__matmul_problem problem = product(mixed[i][0], mixed[i][1], 4096, 4096, 4096);
        ck_assert_ok(tsr__matmul_choose(&device, NULL, &problem, NULL, &plan));
        ck_assert_str_eq(plan.config->name, "tiled-l");
    }
    device.coopmat_bf16 = (tsr_coopmat_shape){0};
    ck_assert_str_eq(chosen(TSR_BF16, 4096, 4096, 4096), "tiled-l");
    device.traits = tsr__traits_of(TSR__CLASS_LAVAPIPE);
    ck_assert_str_ne(chosen(TSR_F16, 4096, 4096, 4096), "coopmat-l");
    device.traits = tsr__traits_of(TSR__CLASS_GPU);
    device.coopmat = (tsr_coopmat_shape){0};
    ck_assert_str_eq(chosen(TSR_F16, 4096, 4096, 4096), "tiled-l");
}
END_TEST

START_TEST(smaller_tiles_if_shared_memory_is_small)
{
    device.vendor_id = VENDOR_AMD;
    device.max_shared_bytes = 16384; /* 20 KiB of tiles do not fit */
    ck_assert_str_eq(chosen(TSR_F16, 4096, 4096, 4096), "coopmat-s");
    device.max_shared_bytes = 8192;
    ck_assert_str_ne(chosen(TSR_F16, 4096, 4096, 4096), "coopmat-s");
}
END_TEST

START_TEST(long_k_is_split)
{
    tsr__matmul_problem problem = product(TSR_F16, TSR_F16, 64, 16384, 64);
    tsr__matmul_plan plan;

    device.vendor_id = VENDOR_AMD;
    ck_assert_ok(tsr__matmul_choose(&device, NULL, &problem, NULL, &plan));
    ck_assert_str_eq(plan.config->name, "coopmat-s");
    ck_assert_uint_gt(plan.splits, 1);
    ck_assert_uint_eq(plan.k_chunk % plan.config->bk, 0);
}
END_TEST

/* With few rows, a large GPU needs four times as many workgroups to keep its memory busy, so k
 * is divided into more ranges. */
START_TEST(few_rows_have_more_parts)
{
    tsr__matmul_problem few = product(TSR_F16, TSR_F16, 8, 16384, 64),
                        many = product(TSR_F32, TSR_F32, 32, 65536, 64);
    tsr__matmul_plan plan;

    ck_assert_ok(tsr__matmul_choose(&device, NULL, &few, NULL, &plan));
    ck_assert_str_eq(plan.config->name, "vector-k");
    ck_assert_uint_eq(plan.splits, 512 / (64 / plan.config->bn));
    ck_assert_ok(tsr__matmul_choose(&device, NULL, &many, NULL, &plan));
    ck_assert_str_eq(plan.config->name, "tiled-s");
    ck_assert_uint_eq(plan.splits, 128 / (64 / plan.config->bn));
    few = product(TSR_F32, TSR_F32, 31, 65536, 64);
    ck_assert_ok(tsr__matmul_choose(&device, NULL, &few, NULL, &plan));
    ck_assert_str_eq(plan.config->name, "tiled-s");
    ck_assert_uint_eq(plan.splits, 512 / (64 / plan.config->bn));
}
END_TEST

static uint32_t parts(int64_t m, int64_t k, int64_t n)
{
    const tsr__matmul_problem problem = product(TSR_F32, TSR_F32, m, k, n);
    tsr__matmul_plan plan;
    ck_assert_ok(tsr__matmul_choose(&device, NULL, &problem, NULL, &plan));
    ck_assert_str_eq(plan.config->name, "tiled-l");
    return plan.splits;
}

/* 132 processors with room for two workgroups each need the same time for 144 tiles as for 264.
 * With k divided into seven ranges, 144 tiles are 1,008 workgroups, which take four rounds of a
 * seventh. */
START_TEST(few_processors_are_idle_in_the_end)
{
    device.processors = 132;
    ck_assert_uint_eq(parts(3072, 8192, 768), 7);
    ck_assert_uint_eq(parts(3072, 1024, 768), 3); /* a part has at least 256 elements of k */
    ck_assert_uint_eq(parts(3072, 256, 768), 1);
    ck_assert_uint_eq(parts(16896, 8192, 128), 2); /* each processor has room for a second one */
    ck_assert_uint_eq(parts(33792, 8192, 128), 1); /* all processors are busy until the end */
    ck_assert_uint_eq(parts(8192, 4096, 4096), 1); /* of so many tiles, the last hardly matter */
    device.processors = 0;
    ck_assert_uint_eq(parts(3072, 8192, 768), 1);
}
END_TEST

/* Gradients of weights in a training step of GPT on an H200: 108 tiles of 264 that fit, and 144. */
START_TEST(gradients_of_weights_fill_all_slots)
{
    static const struct {
        int64_t m, n;
        uint32_t splits;
    } products[] = {{2304, 768, 2}, {3072, 768, 5}, {768, 768, 7}};
    device.processors = 132;
    for (int i = 0; i < 3; i++) {
        const tsr__matmul_problem problem =
            product(TSR_BF16, TSR_BF16, products[i].m, 8192, products[i].n);
        tsr__matmul_plan plan;
        ck_assert_ok(tsr__matmul_choose(&device, NULL, &problem, NULL, &plan));
        ck_assert_msg(plan.splits == products[i].splits, "[%lld,%lld] by %s: k in %u ranges",
                      (long long)products[i].m, (long long)products[i].n, plan.config->name,
                      (unsigned)plan.splits);
    }
}
END_TEST

START_TEST(forced_but_unsupported)
{
    tsr__matmul_problem problem = product(TSR_F16, TSR_F16, 64, 64, 64);
    tsr__matmul_plan plan;

    device.coopmat = (tsr_coopmat_shape){0};
    ck_assert_error(
        tsr__matmul_choose(
            &device, NULL, &problem,
            &(tsr__matmul_override){.config = tsr__matmul_config_at(TSR__MATMUL_COOPMAT_L)}, &plan),
        TSR_ERR_UNSUPPORTED,
        "matmul: the kernel configuration coopmat-l cannot compute this product on this device");
}
END_TEST

/* Matrices that a workgroup shares ------------------------------------------------------------- */

static bool fits(const char *name, const tsr__matmul_problem *problem)
{
    return tsr__matmul_config_fits(tsr__matmul_config_named(name), &device, problem);
}

START_TEST(only_tunings_share_matrices)
{
    device.coopmat2 = workgroup_matrices;
    ck_assert_str_eq(chosen(TSR_F16, 4096, 4096, 4096), "coopmat-xl");
    ck_assert_str_eq(chosen(TSR_BF16, 4096, 4096, 4096), "coopmat-xl");
}
END_TEST

/* On GeForce, matrices that a workgroup shares come first; the others do what these cannot. */
START_TEST(geforce_shares_matrices)
{
    static const uint32_t ids[] = {0x2684, 0x2b85}; /* RTX 4090, RTX 5090 */
    for (int i = 0; i < 2; i++) {
        device.device_id = ids[i];
        device.coopmat2 = (tsr__coopmat2){0};
        ck_assert_str_eq(chosen(TSR_F16, 4096, 4096, 4096), "coopmat-xl");
        device.coopmat2 = workgroup_matrices;
        ck_assert_str_eq(chosen(TSR_F16, 4096, 4096, 4096), "coopmat2-128x256");
        ck_assert_str_eq(chosen(TSR_BF16, 2048, 2048, 2048), "coopmat2-128x256");
        ck_assert_str_eq(chosen(TSR_F16, 4096, 4095, 4096), "coopmat-xl"); /* not aligned */
        ck_assert_str_eq(chosen(TSR_F16, 16, 4096, 11008), "coopmat-16");
    }
}
END_TEST

/* On a device with matrices that a workgroup shares, every configuration runs unless its tile is
 * no multiple of what the device requires. */
START_TEST(tiles_of_workgroups)
{
    const tsr__matmul_config *config;
    int count = 0;

    for (int i = 0; (config = tsr__matmul_config_at(i)) != NULL; i++) {
        if (config->family != &tsr__matmul_coopmat2)
            continue;
        device.coopmat2 = workgroup_matrices;
        ck_assert(tsr__matmul_config_runs(config, &device));
        device.coopmat2.max_dimension = 8;
        ck_assert(!tsr__matmul_config_runs(config, &device));
        for (int j = 0; j < TSR__COOPMAT2_GROUPS; j++) {
            device.coopmat2 = workgroup_matrices;
            device.coopmat2.f16[j].n = device.coopmat2.bf16[j].k = 96;
            ck_assert_int_eq(tsr__matmul_config_runs(config, &device), config->threads != 32U << j);
        }
        count++;
    }
    ck_assert_int_gt(count, 0);
    ck_assert_int_le(tsr__matmul_config_index(tsr__matmul_config_named("coopmat2-128x256")), 63);
}
END_TEST

/* One stride of an operand must be 1, and all others a multiple of 16 bytes. */
START_TEST(operands_of_workgroups)
{
    const char *name = "coopmat2-64x128";
    tsr__matmul_problem p = product(TSR_F16, TSR_F16, 100, 64, 100);

    device.coopmat2 = workgroup_matrices;
    ck_assert(fits(name, &p));
    p.a.offset = 4;
    ck_assert(!fits(name, &p));
    p.a.offset = 8;
    p.a.row = 56; /* the rows of a overlap */
    ck_assert(!fits(name, &p));
    p.a.row = 72;
    ck_assert(fits(name, &p));
    p.a.col = 2;
    ck_assert(!fits(name, &p));
    p.a.col = 1;
    p.b.col = 0; /* all columns of b are the same */
    ck_assert(!fits(name, &p));
    p.b.col = 1; /* b is [k,n], where n is no multiple of 8 */
    p.b.row = 104;
    ck_assert(!fits(name, &p));
    p.n = 104;
    ck_assert(fits(name, &p));
    p.b.row = 1 << 26; /* offsets need more than 32 bits */
    ck_assert(!fits(name, &p));
    p.b.row = 104;
    p.y.dtype = TSR_F16;
    ck_assert(fits(name, &p));
    p.y.dtype = TSR_BF16;
    ck_assert(!fits(name, &p));
    p.y.dtype = TSR_F32;
    p.b.dtype = TSR_BF16;
    ck_assert(!fits(name, &p));
}
END_TEST

/* The kernel can store y with tensor instructions if the rows of y start at multiples of 16
 * bytes. */
START_TEST(stores_of_workgroups)
{
    const tsr__matmul_config *config = tsr__matmul_config_named("coopmat2-128x256");
    uint32_t spec[TSR__MATMUL_SPEC_MAX];
    tsr__shader shader;

    device.coopmat2 = workgroup_matrices;
    for (int vectors = 0; vectors < 2; vectors++)
        for (int aligned = 0; aligned < 2; aligned++)
            for (int narrow = 0; narrow < 2; narrow++) {
                tsr__matmul_problem p = product(TSR_BF16, TSR_BF16, 128, 64, aligned ? 128 : 132);
                p.y.dtype = narrow ? TSR_BF16 : TSR_F32;
                tsr__matmul_variant variant = tsr__matmul_variant_for(config, &device, &p, true);
                variant.mode =
                    (uint32_t)p.y.dtype << TSR_MM_Y_DTYPE_SHIFT | (vectors ? TSR_MM_Y_VECTORS : 0);
                ck_assert_int_eq(config->family->pipeline(config, &variant, &shader, spec), 10);
                ck_assert_int_eq(shader, TSR__SHADER_MATMUL_COOPMAT2_BF16);
                ck_assert_uint_eq(spec[0], 256);
                ck_assert_uint_eq(spec[1], 128);
                ck_assert_uint_eq(spec[2], 256);
                ck_assert_uint_eq(spec[5], TSR_MM_LOAD_VEC8_K);
                ck_assert_uint_eq(spec[8], vectors && (aligned || !narrow));
            }
}
END_TEST

/* The constants of all tiles ------------------------------------------------------------------- */

typedef struct seen {
    const tsr__matmul_device *device;
    int variants;
} seen;

static bool by_line(uint32_t load)
{
    return load == TSR_MM_LOAD_VEC_LINE || load == TSR_MM_LOAD_SCALAR_LINE ||
           load == TSR_MM_LOAD_VEC8_LINE;
}

/* Checks the shader's constants: the tile consists of complete fragments, each thread loads
 * complete vectors of eight, and shared memory suffices. */
static void check_variant(void *user, const tsr__matmul_config *config,
                          const tsr__matmul_variant *variant)
{
    seen *so_far = user;
    const tsr__matmul_device *on = so_far->device;
    uint32_t spec[TSR__MATMUL_SPEC_MAX];
    tsr__shader shader;

    ck_assert_int_eq(config->family->pipeline(config, variant, &shader, spec), 19);
    ck_assert(spec[15] == 1 && spec[16] == 1 && spec[18] == 0); /* no operand is narrowed */
    ck_assert_uint_eq(spec[17], config->band > 0 ? config->band : 8);
    ck_assert_int_eq(shader, variant->a_dtype == TSR_BF16 ? TSR__SHADER_MATMUL_COOPMAT_BF16
                                                          : TSR__SHADER_MATMUL_COOPMAT);
    ck_assert_int_eq(variant->a_dtype, variant->b_dtype);
    uint32_t threads = spec[0], size = spec[1], down = spec[2], bm = spec[3], bn = spec[4],
             bk = spec[5], fm = spec[6], fn = spec[7], fk = spec[8], staged = spec[9];
    uint32_t subgroups = threads / size, across = subgroups / down;
    ck_assert_uint_eq(subgroups * size, threads);
    ck_assert_uint_eq(down * across, subgroups);
    ck_assert_uint_eq(bm % (down * fm), 0);
    ck_assert_uint_eq(bn % (across * fn), 0);
    ck_assert_uint_eq(bk % fk, 0);
    ck_assert_uint_eq(bn / across / fn % staged, 0);
    ck_assert_uint_eq(bm * bk % 8, 0);
    ck_assert_uint_eq(bn * bk % 8, 0);
    ck_assert_uint_le(subgroups, on->max_subgroups);
    /* Computes the shader's use of shared memory: padded 16-bit elements of the operands, and
     * afterwards the sums, in the same place except for bf16. */
    bool a_by_line = by_line(spec[10]) && !spec[14], b_by_line = by_line(spec[11]) && !spec[14];
    uint32_t a_rows = a_by_line ? bk : bm, a_row = (a_by_line ? bm : bk) + 8;
    uint32_t b_rows = b_by_line ? bk : bn, b_row = (b_by_line ? bn : bk) + 8;
    uint32_t tiles = spec[12] * 2 * (a_rows * a_row + b_rows * b_row);
    uint32_t sums = 4 * subgroups * fm * fn * staged;
    ck_assert_uint_le(variant->a_dtype == TSR_BF16 ? tiles + sums : tiles, on->max_shared_bytes);
    ck_assert_uint_le(sums, on->max_shared_bytes);
    so_far->variants++;
}

START_TEST(tiles_are_covered_on_every_device)
{
    static const uint32_t shapes[][3] = {{8, 8, 8},   {16, 16, 16}, {16, 8, 16}, {16, 8, 8},
                                         {8, 16, 16}, {8, 8, 16},   {32, 32, 16}};
    static const char *const names[] = {"coopmat-l", "coopmat-s",  "coopmat-xl", "coopmat-l64",
                                        "coopmat-m", "coopmat-32", "coopmat-16"};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t size = 4; size <= 128; size *= 2)
            for (uint32_t shared = 16384; shared <= 65536; shared += 16384)
                for (size_t c = 0; c < sizeof names / sizeof *names; c++) {
                    const tsr__matmul_config *config = tsr__matmul_config_named(names[c]);
                    seen so_far = {.device = &device};
                    device.coopmat = (tsr_coopmat_shape){
                        .m = shapes[i][0], .n = shapes[i][1], .k = shapes[i][2]};
                    device.coopmat_bf16 = device.coopmat;
                    device.coopmat_subgroup_size = size;
                    device.max_shared_bytes = shared;
                    bool runs = tsr__matmul_config_runs(config, &device);
                    int dtypes = (tsr__matmul_fragment_for(config, &device, TSR_F16).m > 0) +
                                 (tsr__matmul_fragment_for(config, &device, TSR_BF16).m > 0);
                    int variants = dtypes * TSR_MM_COOPMAT_LOADS * TSR_MM_COOPMAT_LOADS;
                    if (runs)
                        tsr__matmul_each_variant(config, &device, check_variant, &so_far);
                    ck_assert_int_eq(so_far.variants, runs ? variants : 0);
                    /* Shapes that today's GPUs have must be supported. */
                    if (c < 2 && size >= 16 && size <= 64 &&
                        shared >= (size < 32 ? 49152 : 32768) && i < 6)
                        ck_assert(runs);
                }
}
END_TEST

/* The strides of the operands decide how the kernel loads them: as vectors of eight, of four, or
 * as single elements. */
START_TEST(loads_follow_strides)
{
    const tsr__matmul_config *config = tsr__matmul_config_named("coopmat-s");
    tsr__matmul_problem p = product(TSR_F16, TSR_F16, 64, 64, 64);
    tsr__matmul_variant variant = tsr__matmul_variant_for(config, &device, &p, true);

    ck_assert_uint_eq(variant.a_load, TSR_MM_LOAD_VEC8_K);
    ck_assert_uint_eq(variant.b_load, TSR_MM_LOAD_VEC8_K);
    p = product(TSR_F16, TSR_F16, 64, 60, 64); /* row strides are multiples of 4 but not of 8 */
    variant = tsr__matmul_variant_for(config, &device, &p, true);
    ck_assert_uint_eq(variant.a_load, TSR_MM_LOAD_VEC_K);
    ck_assert_uint_eq(variant.b_load, TSR_MM_LOAD_VEC_K);
    p = product(TSR_F16, TSR_F16, 64, 63, 64); /* row strides are not multiples of 4 */
    variant = tsr__matmul_variant_for(config, &device, &p, true);
    ck_assert_uint_eq(variant.a_load, 0);
    ck_assert_uint_eq(variant.b_load, 0);
    p = product(TSR_F16, TSR_F16, 64, 64, 64);
    p.a.row = 1; /* a is transposed */
    p.a.col = 64;
    variant = tsr__matmul_variant_for(config, &device, &p, true);
    ck_assert_uint_eq(variant.a_load, TSR_MM_LOAD_VEC8_LINE);
    variant = tsr__matmul_variant_for(config, &device, &p, false);
    ck_assert_uint_eq(variant.a_load, 3);
    ck_assert_uint_eq(variant.b_load, 0);
    p.m = p.k = 61; /* sizes are odd, but strides are not */
    variant = tsr__matmul_variant_for(config, &device, &p, true);
    ck_assert_uint_eq(variant.a_load, TSR_MM_LOAD_VEC8_LINE);
    ck_assert_uint_eq(variant.b_load, TSR_MM_LOAD_VEC8_K);
    p = product(TSR_F32, TSR_F32, 64, 61, 64);
    p.a.row = p.b.col = 64;
    variant = tsr__matmul_variant_for(tsr__matmul_config_named("tiled-m"), &device, &p, true);
    ck_assert_uint_eq(variant.a_load, TSR_MM_LOAD_VEC_K);
    ck_assert_uint_eq(variant.b_load, TSR_MM_LOAD_VEC_K);
    /* kernels for few rows do not read beyond the ends of rows */
    variant = tsr__matmul_variant_for(tsr__matmul_config_named("vector-k"), &device, &p, true);
    ck_assert_uint_eq(variant.b_load, TSR_MM_LOAD_SCALAR);
}
END_TEST

TESTS(coopmat_shape)
{
    tcase_add_checked_fixture(tests, make_device, NULL);
    tcase_add_test(tests, largest_f16_shape_with_f32_sums);
    tcase_add_test(tests, largest_bf16_shape_with_f32_sums);
    tcase_add_test(tests, bf16_has_its_own_requirements);
    tcase_add_test(tests, none_if_a_requirement_is_missing);
    tcase_add_test(tests, size_of_subgroups);
    tcase_add_test(tests, matrices_of_workgroups);
    tcase_add_test(tests, lists_that_are_too_long);
}

TESTS(coopmat_kernel)
{
    tcase_add_checked_fixture(tests, make_gpu, NULL);
    tcase_add_test(tests, configurations_that_only_tunings_choose);
    tcase_add_test(tests, large_products_of_f16);
    tcase_add_test(tests, products_of_f16_on_nvidia);
    tcase_add_test(tests, nine_to_sixteen_rows_of_f32);
    tcase_add_test(tests, few_rows_do_not_split_k);
    tcase_add_test(tests, sums_of_subgroups);
    tcase_add_test(tests, long_k_gives_large_tiles_work);
    tcase_add_test(tests, tiles_for_amd);
    tcase_add_test(tests, tiles_for_intel);
    tcase_add_test(tests, tiles_for_a_small_gpu);
    tcase_add_test(tests, products_of_bf16);
    tcase_add_test(tests, fragments_that_are_stored_together);
    tcase_add_test(tests, other_dtypes_do_not_use_them);
    tcase_add_test(tests, smaller_tiles_if_shared_memory_is_small);
    tcase_add_test(tests, long_k_is_split);
    tcase_add_test(tests, few_rows_have_more_parts);
    tcase_add_test(tests, few_processors_are_idle_in_the_end);
    tcase_add_test(tests, gradients_of_weights_fill_all_slots);
    tcase_add_test(tests, forced_but_unsupported);
    tcase_add_test(tests, only_tunings_share_matrices);
    tcase_add_test(tests, geforce_shares_matrices);
    tcase_add_test(tests, tiles_of_workgroups);
    tcase_add_test(tests, operands_of_workgroups);
    tcase_add_test(tests, stores_of_workgroups);
    tcase_add_test(tests, tiles_are_covered_on_every_device);
    tcase_add_test(tests, loads_follow_strides);
}
