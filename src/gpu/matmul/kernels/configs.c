#include "gpu/matmul/kernels/configs.h"

#include <string.h>

#include "base/error.h"
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/matmul/kernels/kernels.h"
#include "shaders/params/matmul.h"

static const tsr__matmul_config configs[TSR__MATMUL_GPU_CONFIGS] = {
    [TSR__MATMUL_TILED_L] = {"tiled-l", &tsr__matmul_tiled, .threads = 256, .bm = 128, .bn = 128,
                             .bk = 16, .tm = 8, .tn = 8, .vectors = true, .resident = 2},
    [TSR__MATMUL_TILED_M] = {"tiled-m", &tsr__matmul_tiled, .threads = 256, .bm = 64, .bn = 64,
                             .bk = 16, .tm = 4, .tn = 4, .resident = 4},
    /* Half of the invocations of tiled-m, with twice the registers: it reads shared memory less
     * often. */
    [TSR__MATMUL_TILED_M8] = {"tiled-m8", &tsr__matmul_tiled, .threads = 128, .bm = 64, .bn = 64,
                              .bk = 16, .tm = 8, .tn = 4, .vectors = true, .resident = 4},
    [TSR__MATMUL_TILED_S] = {"tiled-s", &tsr__matmul_tiled, .threads = 64, .bm = 32, .bn = 32,
                             .bk = 16, .tm = 4, .tn = 4, .resident = 8},
    /* Only tunings choose the next four configurations. Their tiles are not square, which suits
     * an m or n that is small, or they process more of k per step. */
    [TSR__MATMUL_TILED_128X64] = {"tiled-128x64", &tsr__matmul_tiled, .threads = 256, .bm = 128,
                                  .bn = 64, .bk = 16, .tm = 8, .tn = 4, .vectors = true,
                                  .resident = 3},
    [TSR__MATMUL_TILED_64X128] = {"tiled-64x128", &tsr__matmul_tiled, .threads = 256, .bm = 64,
                                  .bn = 128, .bk = 16, .tm = 4, .tn = 8, .vectors = true,
                                  .resident = 3},
    [TSR__MATMUL_TILED_M_K32] = {"tiled-m-k32", &tsr__matmul_tiled, .threads = 256, .bm = 64,
                                 .bn = 64, .bk = 32, .tm = 4, .tn = 4, .vectors = true,
                                 .resident = 4},
    [TSR__MATMUL_TILED_32X64] = {"tiled-32x64", &tsr__matmul_tiled, .threads = 128, .bm = 32,
                                 .bn = 64, .bk = 16, .tm = 4, .tn = 4, .resident = 6},
    /* The next four configurations have tiles of f16 in shared memory. Because f16 has half the
     * size of f32, their steps are twice as long as those above, in as much shared memory. */
    [TSR__MATMUL_PAIRS_L] = {"pairs-l", &tsr__matmul_pairs, .threads = 256, .bm = 128, .bn = 128,
                             .bk = 32, .tm = 8, .tn = 8, .vectors = true},
    [TSR__MATMUL_PAIRS_M8] = {"pairs-m8", &tsr__matmul_pairs, .threads = 128, .bm = 64, .bn = 64,
                              .bk = 32, .tm = 8, .tn = 4, .vectors = true},
    [TSR__MATMUL_PAIRS_M] = {"pairs-m", &tsr__matmul_pairs, .threads = 256, .bm = 64, .bn = 64,
                             .bk = 32, .tm = 4, .tn = 4},
    [TSR__MATMUL_PAIRS_S] = {"pairs-s", &tsr__matmul_pairs, .threads = 64, .bm = 32, .bn = 32,
                             .bk = 32, .tm = 4, .tn = 4},
    [TSR__MATMUL_VECTOR_K] = {"vector-k", &tsr__matmul_vector_k, .threads = 64, .bm = 8, .bn = 4,
                              .bk = 4, .tm = 8, .tn = 4},
    [TSR__MATMUL_VECTOR_K16] = {"vector-k16", &tsr__matmul_vector_k, .threads = 64, .bm = 16,
                                .bn = 4, .bk = 4, .tm = 16, .tn = 4},
    [TSR__MATMUL_VECTOR_COL] = {"vector-col", &tsr__matmul_vector_col, .threads = 128, .bm = 8,
                                .bn = 64, .bk = 8, .tm = 8, .tn = 4},
    /* Four times as many workgroups, of twice as many invocations, for up to four rows. */
    [TSR__MATMUL_VECTOR_COL16] = {"vector-col16", &tsr__matmul_vector_col, .threads = 256, .bm = 4,
                                  .bn = 16, .bk = 8, .tm = 4, .tn = 4},
    [TSR__MATMUL_WIDE] = {"wide", &tsr__matmul_wide, .threads = 64, .bm = 1, .bn = 64, .bk = 1,
                          .tm = 1, .tn = 1},
    [TSR__MATMUL_COOPMAT_L] = {"coopmat-l", &tsr__matmul_coopmat, .threads = 256, .bm = 128,
                               .bn = 128, .bk = 32, .resident = 2},
    [TSR__MATMUL_COOPMAT_S] = {"coopmat-s", &tsr__matmul_coopmat, .threads = 128, .bm = 64,
                               .bn = 64, .bk = 32, .resident = 4},
    /* In this configuration a subgroup of 32 computes 64 × 64 elements. NVIDIA's GPUs have enough
     * registers for that; with RADV they would spill. */
    [TSR__MATMUL_COOPMAT_XL] = {"coopmat-xl", &tsr__matmul_coopmat, .threads = 128, .bm = 128,
                                .bn = 128, .bk = 64, .vendor_id = TSR__VENDOR_NVIDIA,
                                .resident = 2},
    /* Only tunings choose the next two. One has two buffers of half the depth in place of one, so
     * that stores overlap with products. The other one reads a and b from memory a quarter less
     * often. */
    [TSR__MATMUL_COOPMAT_XL2] = {"coopmat-xl2", &tsr__matmul_coopmat, .threads = 128, .bm = 128,
                                 .bn = 128, .bk = 32, .vendor_id = TSR__VENDOR_NVIDIA, .buffers = 2,
                                 .band = 16, .resident = 2},
    [TSR__MATMUL_COOPMAT_2XL] = {"coopmat-2xl", &tsr__matmul_coopmat, .threads = 256, .bm = 256,
                                 .bn = 128, .bk = 32, .vendor_id = TSR__VENDOR_NVIDIA,
                                 .resident = 1},
    [TSR__MATMUL_COOPMAT_L64] = {"coopmat-l64", &tsr__matmul_coopmat, .threads = 256, .bm = 128,
                                 .bn = 128, .bk = 64, .resident = 2},
    [TSR__MATMUL_COOPMAT_M] = {"coopmat-m", &tsr__matmul_coopmat, .threads = 128, .bm = 64,
                               .bn = 64, .bk = 64, .buffers = 2, .resident = 4},
    [TSR__MATMUL_COOPMAT_32] = {"coopmat-32", &tsr__matmul_coopmat, .threads = 128, .bm = 32,
                                .bn = 64, .bk = 64, .buffers = 2, .resident = 4},
    [TSR__MATMUL_COOPMAT_16] = {"coopmat-16", &tsr__matmul_coopmat, .threads = 128, .bm = 16,
                                .bn = 64, .bk = 64, .buffers = 2, .resident = 4},
    /* This is coopmat-s with twice the invocations, each of which needs half the registers. On
     * Intel's Xe2, larger tiles spill registers. */
    [TSR__MATMUL_COOPMAT_S256] = {"coopmat-s256", &tsr__matmul_coopmat, .threads = 256, .bm = 64,
                                  .bn = 64, .bk = 32, .resident = 4},
    /* On an H200, coopmat-xl is a quarter faster than the next configurations (chip_tiles.c). The
     * driver decides how the subgroups divide the tile. */
    [TSR__MATMUL_COOPMAT2_128X256] = {"coopmat2-128x256", &tsr__matmul_coopmat2, .threads = 256,
                                      .bm = 128, .bn = 256, .bk = 64, .steps = 4, .resident = 1},
    [TSR__MATMUL_COOPMAT2_128X128] = {"coopmat2-128x128", &tsr__matmul_coopmat2, .threads = 256,
                                      .bm = 128, .bn = 128, .bk = 64, .steps = 4, .resident = 2},
    [TSR__MATMUL_COOPMAT2_64X128] = {"coopmat2-64x128", &tsr__matmul_coopmat2, .threads = 128,
                                     .bm = 64, .bn = 128, .bk = 64, .steps = 4, .resident = 3},
};

const tsr__matmul_config *tsr__matmul_config_at(int index)
{
    if (index < TSR__MATMUL_GPU_CONFIGS)
        return index >= 0 ? &configs[index] : NULL;
    return tsr__cpu_matmul_config_at(index - TSR__MATMUL_GPU_CONFIGS);
}

const tsr__matmul_config *tsr__matmul_config_named(const char *name)
{
    const tsr__matmul_config *config;

    for (int i = 0; (config = tsr__matmul_config_at(i)) != NULL; i++)
        if (strcmp(config->name, name) == 0)
            return config;
    return NULL;
}

tsr_status tsr__matmul_config_find(const char *name, const tsr__matmul_config **out)
{
    *out = tsr__matmul_config_named(name);
    return *out ? TSR_OK
                : tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: no kernel configuration is called \"%s\"",
                            name);
}

int tsr__matmul_config_index(const tsr__matmul_config *config)
{
    int index = 0;

    while (tsr__matmul_config_at(index) != config)
        index++;
    return index;
}

static bool is_off(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    return device->off != 0 && (device->off >> tsr__matmul_config_index(config) & 1) != 0;
}

bool tsr__matmul_config_runs(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    return !is_off(config, device) && config->threads <= device->max_invocations &&
           (config->vendor_id == 0 || config->vendor_id == device->vendor_id) &&
           config->family->runs(config, device);
}

bool tsr__matmul_config_fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                             const tsr__matmul_problem *problem)
{
    const bool narrowed = problem->a_terms > 0 || problem->b_terms > 0;

    return (config->family->narrows || !narrowed) && tsr__matmul_config_runs(config, device) &&
           config->family->fits(config, device, problem);
}

tsr__matmul_variant tsr__matmul_variant_for(const tsr__matmul_config *config,
                                            const tsr__matmul_device *device,
                                            const tsr__matmul_problem *problem, bool vectors)
{
    tsr__matmul_variant variant = {.a_dtype = problem->a.dtype, .b_dtype = problem->b.dtype};

    if (config->family->specialize)
        config->family->specialize(config, device, problem, vectors, &variant);
    return variant;
}

static bool has_variant(const tsr__matmul_config *config, const tsr__matmul_device *device,
                        tsr__matmul_variant *variant)
{
    if (config->family->has_variant)
        return config->family->has_variant(config, device, variant);
    bool one = variant->rows == 1;
    variant->rows = 0;
    return one && variant->a_load == TSR_MM_LOAD_SCALAR && variant->b_load == TSR_MM_LOAD_SCALAR;
}

void tsr__matmul_each_variant(const tsr__matmul_config *config, const tsr__matmul_device *device,
                              tsr__matmul_visit_fn visit, void *user)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    const uint32_t loads = TSR_MM_COOPMAT_LOADS * TSR_MM_COOPMAT_LOADS, max_rows = 16;

    if (!config->family->pipeline)
        return;
    for (int pair = 0; pair < 9; pair++)
        for (uint32_t load = 0; load < loads; load++)
            for (uint32_t rows = 1; rows <= max_rows; rows *= 2) {
                tsr__matmul_variant variant = {.a_dtype = dtypes[pair / 3],
                                               .b_dtype = dtypes[pair % 3],
                                               .a_load = load / TSR_MM_COOPMAT_LOADS,
                                               .b_load = load % TSR_MM_COOPMAT_LOADS,
                                               .rows = rows};
                if (has_variant(config, device, &variant))
                    visit(user, config, &variant);
            }
}
