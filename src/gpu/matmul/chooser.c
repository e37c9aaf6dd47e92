/* The choice of a configuration, which is a kernel with one size of tile (common/kernel.h), and
 * of the number of ranges into which k is split. */
#include "gpu/matmul/chooser.h"

#include "base/checked.h"
#include "base/error.h"
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/device/coopmat.h"
#include "gpu/matmul/chips.h"
#include "gpu/matmul/tuning/tuned.h"

static tsr_coopmat_shape shape_used(const tsr_device *device, tsr_dtype dtype)
{
    const tsr_coopmat_shape *used = tsr__coopmat_used(device, dtype);
    return used ? *used : (tsr_coopmat_shape){0};
}

tsr__matmul_device tsr__matmul_device_of(const tsr_device *device)
{
    return (tsr__matmul_device){
        .traits = device->traits,
        .vendor_id = device->info.vendor_id,
        .device_id = device->info.device_id,
        .processors = device->info.processor_count,
        .max_invocations = device->info.max_workgroup_invocations,
        .max_shared_bytes = device->info.max_shared_memory_bytes,
        .subgroup_size = device->info.subgroup_size,
        .subgroup_size_min = device->info.subgroup_size_min,
        .quads = device->subgroup_quads,
        .int64 = device->info.int64,
        .dot2 = device->dot2,
        .coopmat = shape_used(device, TSR_F16),
        .coopmat_bf16 = shape_used(device, TSR_BF16),
        .coopmat2 = device->storage == TSR__STORAGE_S16 ? device->coopmat2 : (tsr__coopmat2){0},
        .coopmat_subgroup_size = device->info.coopmat_subgroup_size,
        .max_subgroups = device->max_workgroup_subgroups,
    };
}

static uint64_t tiles_of(const tsr__matmul_config *config, const tsr__matmul_problem *p)
{
    return tsr__div_up_u64((uint64_t)p->m, config->bm) *
           tsr__div_up_u64((uint64_t)p->n, config->bn) * (uint64_t)p->batch_count;
}

/* The number of ranges into which a long k can be split. Each range of a tile is a workgroup. If
 * these are counted, larger tiles still occupy the device. */
static uint64_t parts_of(const tsr__matmul_problem *p)
{
    return p->k < 2048 ? 1 : (uint64_t)p->k / 1024;
}

/* The number of workgroups that occupies all of the device. */
static uint64_t enough_tiles(const tsr__matmul_device *device)
{
    const uint64_t on_large_gpu = 128, on_cpu = 8;

    if (device->traits.few_invocations)
        return on_cpu;
    return tsr__chip_enough(tsr__chip_of(device), device, on_large_gpu);
}

/* Returns the first tile of the list that can compute the problem and is worth using, or NULL. */
static const tsr__matmul_config *first_worthwhile(const tsr__chip *chip,
                                                  const tsr__chip_tile *tiles,
                                                  const tsr__matmul_device *device,
                                                  const tsr__matmul_problem *p)
{
    for (const tsr__chip_tile *tile = tiles; tile->config != TSR__MATMUL_GPU_CONFIGS; tile++) {
        const tsr__matmul_config *config = tsr__matmul_config_at(tile->config);
        if ((!tile->half_rows || p->m > config->bm / 2) &&
            (!tile->half_columns || p->n > config->bn / 2) &&
            tsr__matmul_config_fits(config, device, p) &&
            tiles_of(config, p) * (tile->counts_parts ? parts_of(p) : 1) >=
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
    const tsr__matmul_config *config =
        device->traits.not_a_chip ? tsr__cpu_matmul_choose(device, p) : for_gpu(device, p);

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
    return id == TSR__MATMUL_VECTOR_COL || id == TSR__MATMUL_VECTOR_K ||
           id == TSR__MATMUL_VECTOR_K16 || lists(chip->coopmat_tiles, id) ||
           (device->dot2 && lists(chip->pair_tiles, id)) || lists(chip->tiles, id) ||
           was_measured(chip, id);
}

/* Returns the number of workgroups up to which k is split. With few rows, reading b takes most
 * of the time. To use its full bandwidth, a large GPU needs about ten KiB of loads in flight on
 * each of its hundred or more processors, and therefore several workgroups on each. The partial
 * sums of few rows are small, so that splitting costs little. */
static uint64_t enough_parts(const tsr__matmul_device *device, const tsr__matmul_problem *p)
{
    return enough_tiles(device) * (!device->traits.few_invocations && p->m < 32 ? 4 : 1);
}

/* Returns the time for all tiles if k is split into `splits` ranges, in units of the time for
 * one tile. A part is one range of one tile. Every processor computes one part after another;
 * while the last parts are computed, most processors may be idle. Each part then writes its
 * sums, and another kernel reads them: per sum, this takes as long as `part_cost` products. */
static double time_with_parts(uint32_t processors, uint64_t tiles, uint64_t k, uint64_t splits,
                              double part_cost)
{
    const uint64_t parts = tiles * splits;
    const double computing = (double)tsr__div_up_u64(parts, processors) / (double)splits;
    const double adding = (double)parts / processors * part_cost / (double)k;
    return splits == 1 ? computing : computing + adding;
}

/* Returns into how many ranges to split k if y has enough tiles to occupy the device, but the
 * last tiles would leave most processors idle: 132 processors take as long for 144 tiles as for
 * 264. */
static uint64_t parts_without_rest(const tsr__matmul_device *device, const tsr__matmul_problem *p,
                                   uint64_t tiles)
{
    /* Calculated from an H100's bandwidth and rate of products, which for 16-bit operands is that
     * of its matrix units. */
    const double part_cost = p->a.dtype == TSR_F32 ? 40 : 300;
    const double worth = 0.9; /* k is split if the time is then less than this fraction */
    const uint64_t most = 8, k = (uint64_t)p->k;
    uint64_t best = 1;
    double shortest = worth * time_with_parts(device->processors, tiles, k, 1, part_cost);
    for (uint64_t splits = 2; splits <= most; splits++) {
        const double time = time_with_parts(device->processors, tiles, k, splits, part_cost);
        if (time < shortest) {
            best = splits;
            shortest = time;
        }
    }
    return best;
}

/* Splits k if it is long and y has too few tiles to occupy the device, or a number of tiles that
 * would leave most processors idle at the end. */
static void choose_splits(const tsr__matmul_device *device, const tsr__matmul_problem *p,
                          uint32_t at_most, tsr__matmul_plan *plan)
{
    const uint64_t shortest = 256, step = 64;
    uint64_t tiles = tiles_of(plan->config, p), k = (uint64_t)p->k;
    uint64_t splits = at_most, enough = enough_parts(device, p);

    if (splits == 0) {
        splits = tiles < enough ? enough / tiles : 1;
        if (tiles >= enough && !device->traits.few_invocations && device->processors > 0)
            splits = parts_without_rest(device, p, tiles);
        if (splits > k / shortest)
            splits = k / shortest;
    }
    /* At most 256 matrices are split: partial sums are indexed with 32 bits, and the number of
     * workgroups in z counts the parts of all matrices. */
    if (splits < 2 || k < 2 * step || (at_most != 0 && tiles > enough) || p->batch_count > 256) {
        plan->splits = 1;
        plan->k_chunk = (uint32_t)k;
        return;
    }
    uint64_t chunk = tsr__div_up_u64(tsr__div_up_u64(k, splits), step) * step;
    plan->k_chunk = (uint32_t)chunk;
    plan->splits = (uint32_t)tsr__div_up_u64(k, chunk);
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
        choose_splits(device, problem, override ? override->splits : 0, &plan);
    *out = plan;
    return TSR_OK;
}
