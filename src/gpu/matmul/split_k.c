/* Into how many ranges k is split. Each range of a tile is a workgroup, which stores partial sums;
 * another dispatch adds these up (tsr__matmul_finish, shaders/gpu/matmul_sum.comp). */
#include "gpu/matmul/split_k.h"

#include "base/checked.h"
#include "gpu/matmul/chip_tiles.h"

uint64_t tsr__matmul_tiles(const tsr__matmul_config *config, const tsr__matmul_problem *p)
{
    return tsr__div_up_u64((uint64_t)p->m, config->bm) *
           tsr__div_up_u64((uint64_t)p->n, config->bn) * (uint64_t)p->batch_count;
}

uint64_t tsr__matmul_k_ranges(const tsr__matmul_problem *p)
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

/* With few rows, reading b takes most
 * of the time. To use its full bandwidth, a large GPU needs about ten KiB of loads in flight on
 * each of its hundred or more processors, and therefore several workgroups on each. The partial
 * sums of few rows are small, so that splitting costs little. */
uint64_t tsr__matmul_enough_workgroups(const tsr__matmul_device *device,
                                       const tsr__matmul_problem *p)
{
    return enough_tiles(device) * (!device->traits.few_invocations && p->m < 32 ? 4 : 1);
}

/* Returns the time for all tiles if k is split into `splits` ranges, in units of the time for
 * one tile. A workgroup computes one range of one tile. Every processor computes one workgroup
 * after another; while the last ones are computed, most processors may be idle. Each workgroup then
 * writes its sums, and another kernel reads them: per sum, this takes as long as `sum_cost`
 * products. */
static double time_with_splits(uint32_t processors, uint64_t tiles, uint64_t k, uint64_t splits,
                               double sum_cost)
{
    const uint64_t workgroups = tiles * splits;
    const double computing = (double)tsr__div_up_u64(workgroups, processors) / (double)splits;
    const double adding = (double)workgroups / processors * sum_cost / (double)k;
    return splits == 1 ? computing : computing + adding;
}

/* Returns into how many ranges to split k if y has enough tiles to occupy the device, but the
 * last tiles would leave most processors idle: 132 processors take as long for 144 tiles as for
 * 264. */
static uint64_t splits_without_rest(const tsr__matmul_device *device, const tsr__matmul_problem *p,
                                    uint64_t tiles)
{
    /* Calculated from an H100's bandwidth and rate of products, which for 16-bit operands is that
     * of its matrix units. */
    const double sum_cost = p->a.dtype == TSR_F32 ? 40 : 300;
    const double worth = 0.9; /* k is split if the time is then less than this fraction */
    const uint64_t most = 8, k = (uint64_t)p->k;
    uint64_t best = 1;
    double shortest = worth * time_with_splits(device->processors, tiles, k, 1, sum_cost);
    for (uint64_t splits = 2; splits <= most; splits++) {
        const double time = time_with_splits(device->processors, tiles, k, splits, sum_cost);
        if (time < shortest) {
            best = splits;
            shortest = time;
        }
    }
    return best;
}

void tsr__matmul_split_k(const tsr__matmul_device *device, const tsr__matmul_problem *p,
                         uint32_t at_most, tsr__matmul_plan *plan)
{
    const uint64_t shortest = 256, step = 64;
    uint64_t tiles = tsr__matmul_tiles(plan->config, p), k = (uint64_t)p->k;
    uint64_t splits = at_most, enough = tsr__matmul_enough_workgroups(device, p);

    if (splits == 0) {
        splits = tiles < enough ? enough / tiles : 1;
        if (tiles >= enough && !device->traits.few_invocations && device->processors > 0)
            splits = splits_without_rest(device, p, tiles);
        if (splits > k / shortest)
            splits = k / shortest;
    }
    /* At most 256 matrices are split: partial sums are indexed with 32 bits, and the number of
     * workgroups in z counts the ranges of all matrices. */
    if (splits < 2 || k < 2 * step || (at_most != 0 && tiles > enough) || p->batch_count > 256) {
        plan->splits = 1;
        plan->k_chunk = (uint32_t)k;
        return;
    }
    uint64_t chunk = tsr__div_up_u64(tsr__div_up_u64(k, splits), step) * step;
    plan->k_chunk = (uint32_t)chunk;
    plan->splits = (uint32_t)tsr__div_up_u64(k, chunk);
}
