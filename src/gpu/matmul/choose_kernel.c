/* The choice of a configuration, which is a kernel with one size of tile (common/kernel.h).
 * split_k.c chooses the number of ranges into which k is split. */
#include "gpu/matmul/choose_kernel.h"

#include "base/checked.h"
#include "base/error.h"
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/device/coopmat.h"
#include "gpu/matmul/chip_tiles.h"
#include "gpu/matmul/split_k.h"
#include "gpu/matmul/tuning/tuned.h"
#include "shaders/params/matmul.h"

static tsr_coopmat_shape shape_used(const tsr_device *device, tsr_dtype dtype)
{
    const tsr_coopmat_shape *used = tsr__coopmat_used(device, dtype);
    return used ? *used : (tsr_coopmat_shape){0};
}

tsr__matmul_device tsr__matmul_device_of(const tsr_device *device)
{
    return (tsr__matmul_device){
        .traits = device->traits,
        .cpu = device->cpu,
        .vendor_id = device->info.vendor_id,
        .device_id = device->info.device_id,
        .processors = device->info.processor_count,
        .max_invocations = device->info.max_workgroup_invocations,
        .max_shared_bytes = device->info.max_shared_memory_bytes,
        .subgroup_size = device->info.subgroup_size,
        .subgroup_size_min = device->info.subgroup_size_min,
        .subgroup_size_max = device->info.subgroup_size_max,
        .quads = device->subgroup_quads,
        .subgroup_sums = device->subgroup_sums,
        .int64 = device->info.int64,
        .nvk = device->nvk,
        .dot2 = device->dot2,
        .coopmat = shape_used(device, TSR_F16),
        .coopmat_bf16 = shape_used(device, TSR_BF16),
        .coopmat2 = device->storage == TSR__STORAGE_S16 ? device->coopmat2 : (tsr__coopmat2){0},
        .coopmat_subgroup_size = device->info.coopmat_subgroup_size,
        .max_subgroups = device->max_workgroup_subgroups,
    };
}

/* Returns the first tile of the list that can compute the problem and is worth using, or NULL. */
static const tsr__matmul_config *first_worthwhile(const tsr__chip *chip,
                                                  const tsr__chip_tile *tiles,
                                                  const tsr__matmul_device *device,
                                                  const tsr__matmul_problem *p)
{
    for (const tsr__chip_tile *tile = tiles; tile->config != TSR__MATMUL_GPU_CONFIGS; tile++) {
        const tsr__matmul_config *config = tsr__matmul_config_at((int)tile->config);
        if ((!tile->half_rows || p->m > config->bm / 2) &&
            (!tile->half_columns || p->n > config->bn / 2) &&
            tsr__matmul_config_fits(config, device, p) &&
            tsr__matmul_tiles(config, p) * (tile->counts_ranges ? tsr__matmul_k_ranges(p) : 1) >=
                tsr__chip_enough(chip, device, tile->enough_tiles))
            return config;
    }
    return NULL;
}

/* Returns the configuration with cooperative matrices, or NULL if none can be used or is faster. */
static const tsr__matmul_config *with_matrix_units(const tsr__chip *chip,
                                                   const tsr__matmul_device *device,
                                                   const tsr__matmul_problem *p)
{
    if (p->m < chip->coopmat_m || p->n < chip->coopmat_n || p->k < chip->coopmat_k)
        return NULL;
    return first_worthwhile(chip, chip->coopmat_tiles, device, p);
}

/* Products of so few rows take more or larger workgroups instead of several ranges of k, because
 * the dispatch that would add up the ranges' sums takes longer than such a product. */
#define WIDENED_ROWS 4

/* Returns the configuration for few rows, or NULL if none can be used. The choice depends on b:
 * neighbouring invocations should read neighbouring elements of b. */
static const tsr__matmul_config *for_few_rows(const tsr__matmul_device *device,
                                              const tsr__matmul_problem *p)
{
    bool along_columns = p->b.col == 1 || (p->b.row != 1 && p->b.col < p->b.row);
    const tsr__matmul_config *config =
        tsr__matmul_config_at(along_columns ? TSR__MATMUL_VECTOR_COL : TSR__MATMUL_VECTOR_K);

    if (!along_columns && p->m > config->bm)
        config = tsr__matmul_config_at(TSR__MATMUL_VECTOR_K16);
    if (along_columns && p->m <= WIDENED_ROWS &&
        tsr__matmul_tiles(config, p) < tsr__matmul_enough_workgroups(device, p))
        config = tsr__matmul_config_at(TSR__MATMUL_VECTOR_COL16);
    return p->m <= config->bm && tsr__matmul_config_fits(config, device, p) ? config : NULL;
}

static const tsr__matmul_config *for_gpu(const tsr__matmul_device *device,
                                         const tsr__matmul_problem *p)
{
    const tsr__chip *chip = tsr__chip_of(device);
    const tsr__matmul_config *config = with_matrix_units(chip, device, p);
    if (!config)
        config = for_few_rows(device, p);
    if (!config && device->dot2 && p->a.dtype == TSR_F16 && p->b.dtype == TSR_F16)
        config = first_worthwhile(chip, chip->pair_tiles, device, p);
    return config ? config : first_worthwhile(chip, chip->tiles, device, p);
}

static const tsr__matmul_config *usual(const tsr__matmul_device *device,
                                       const tsr__matmul_problem *p)
{
    const tsr__matmul_config *config = device->cpu ? device->cpu->matmul_choose(device, p)
                                       : device->traits.not_a_chip ? NULL
                                                                   : for_gpu(device, p);

    if (!config || !tsr__matmul_config_fits(config, device, p))
        config = tsr__matmul_config_at(TSR__MATMUL_TILED_S);
    if (!tsr__matmul_config_fits(config, device, p))
        config = tsr__matmul_config_at(TSR__MATMUL_WIDE);
    return config;
}

static bool lists(const tsr__chip_tile *tiles, int id)
{
    for (; tiles && tiles->config != TSR__MATMUL_GPU_CONFIGS; tiles++)
        if ((int)tiles->config == id)
            return true;
    return false;
}

static bool was_measured(const tsr__chip *chip, int id)
{
    for (int i = 0; i < chip->tuning_count; i++)
        if ((int)chip->tuning[i].config == id)
            return true;
    return false;
}

bool tsr__matmul_can_choose(const tsr__matmul_device *device, const tsr__matmul_config *config)
{
    const int id = tsr__matmul_config_index(config);

    if (id == TSR__MATMUL_TILED_S || id == TSR__MATMUL_WIDE)
        return true;
    if (device->traits.not_a_chip)
        return id >= TSR__MATMUL_GPU_CONFIGS;
    const tsr__chip *chip = tsr__chip_of(device);
    return id == TSR__MATMUL_VECTOR_COL || id == TSR__MATMUL_VECTOR_COL16 ||
           id == TSR__MATMUL_VECTOR_K || id == TSR__MATMUL_VECTOR_K16 ||
           lists(chip->coopmat_tiles, id) || (device->dot2 && lists(chip->pair_tiles, id)) ||
           lists(chip->tiles, id) || was_measured(chip, id);
}

/* Writes the tuned configuration of the problem's class. Returns false if there is none, or if
 * it can compute other problems of the class but not this one. */
static bool choose_tuned(tsr__tuned *tuned, const tsr__matmul_device *device,
                         const tsr__matmul_problem *problem, tsr__matmul_override *out)
{
    const tsr__matmul_config *config;

    if (!tsr__tuned_find(tuned, problem, &config, &out->splits) ||
        !tsr__matmul_config_fits(config, device, problem))
        return false;
    out->config = config;
    return true;
}

#define WIDENED_THREADS 256
/* The shared memory of a workgroup's sums, which every device has. */
#define WIDENED_SHARED_BYTES 16384

static bool widens(const tsr__matmul_device *device, const tsr__matmul_problem *problem,
                   const tsr__matmul_override *override, const tsr__matmul_plan *plan)
{
    return plan->config->family->widens && problem->m <= WIDENED_ROWS &&
           !device->traits.few_invocations && !(override && override->splits > 0);
}

/* The number of invocations, a power of two, that replaces the ranges of the plan. */
static uint32_t widened_threads(const tsr__matmul_device *device,
                                const tsr__matmul_problem *problem, const tsr__matmul_plan *plan)
{
    const int64_t width = plan->variant.b_load == TSR_MM_LOAD_VEC8_K ? 8 : 4;
    const uint32_t config_threads = plan->config->threads;
    /* the sums of products, and of the squares of each row (call->norm) */
    const uint32_t bytes = 4 * plan->variant.rows * (plan->config->tn + 1);
    uint32_t threads = config_threads;
    while (threads < config_threads * plan->splits && 2 * threads <= WIDENED_THREADS &&
           threads * width < problem->k && 2 * threads <= device->max_invocations &&
           2 * threads * bytes <= WIDENED_SHARED_BYTES)
        threads *= 2;
    return threads;
}

tsr_status tsr__matmul_choose(const tsr__matmul_device *device, tsr__tuned *tuned,
                              const tsr__matmul_problem *problem,
                              const tsr__matmul_override *override, tsr__matmul_plan *out)
{
    tsr__matmul_plan plan = {.method = TSR__MATMUL_FLOATS, .config = usual(device, problem)};
    tsr__matmul_override found;

    if (!override && choose_tuned(tuned, device, problem, &found)) {
        override = &found;
        plan.tuned = true;
    }
    if (override && override->config) {
        plan.config = override->config;
        if (!tsr__matmul_config_fits(plan.config, device, problem))
            return tsr__fail(
                TSR_ERR_UNSUPPORTED,
                "matmul: the kernel configuration %s cannot compute this product on this device",
                plan.config->name);
    }
    /* CPU drivers execute vector loads lane by lane, so that these do not make the tiles for GPUs
     * faster. Using only scalar loads avoids compiling more variants. */
    bool vectors = !device->traits.narrow_accesses || (override && override->config) ||
                   plan.config->family->cpu_vectors;
    plan.variant = tsr__matmul_variant_for(plan.config, device, problem, vectors);
    plan.splits = 1;
    plan.k_chunk = (uint32_t)problem->k;
    if (plan.config->family->splits_k)
        tsr__matmul_split_k(device, problem, override ? override->splits : 0, &plan);
    if (plan.splits > 1 && widens(device, problem, override, &plan)) {
        plan.variant.threads = widened_threads(device, problem, &plan);
        plan.splits = 1;
        plan.k_chunk = (uint32_t)problem->k;
    }
    *out = plan;
    return TSR_OK;
}
