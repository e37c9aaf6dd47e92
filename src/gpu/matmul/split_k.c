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

/* Calculated from an H100's bandwidth and rates of products, by processor. The rate of 16-bit
 * operands is that of its matrix units. */
typedef struct costs {
    double sum;      /* writing and reading a partial sum takes as long as so many multiply-adds */
    double dispatch; /* the dispatch that adds up partial sums, in multiply-adds of a processor */
} costs;

static costs costs_of(const tsr__matmul_problem *p)
{
    return p->a.dtype == TSR_F32 ? (costs){.sum = 40, .dispatch = 0.35e6}
                                 : (costs){.sum = 300, .dispatch = 3.3e6};
}

/* Returns the time that `workgroups` equal workgroups take, in units of the time for one of them at
 * the full rate of a processor. A processor has room for config->resident workgroups at a time, and
 * reaches its full rate only with all of them: with r of R, the rate is 2·r / (R + r) of it. */
static double rounds(const tsr__matmul_config *config, uint32_t processors, uint64_t workgroups)
{
    const uint64_t resident = config->resident > 0 ? config->resident : 1;
    const uint64_t slots = processors * resident, rest = workgroups % slots;
    const uint64_t full = workgroups / slots;
    const double whole = (double)full * (double)resident;

    return rest == 0 ? whole : whole + (double)(resident + tsr__div_up_u64(rest, processors)) / 2;
}

/* Returns the time for all tiles if k is split into `splits` ranges, in units of the time for one
 * tile at the full rate of a processor. A workgroup computes one range of one tile and writes its
 * sums, which another kernel reads. */
static double time_with_splits(const tsr__matmul_config *config, uint32_t processors,
                               const tsr__matmul_problem *p, uint64_t tiles, uint64_t splits)
{
    const costs cost = costs_of(p);
    const double computing = rounds(config, processors, tiles * splits) / (double)splits;
    const double tile = (double)config->bm * config->bn * (double)p->k;

    if (splits == 1)
        return computing;
    return computing + (double)(tiles * splits) / processors * cost.sum / (double)p->k +
           cost.dispatch / tile;
}

/* Returns into how many ranges to split k if y has so many tiles that most processors have one: 144
 * tiles of which a processor has room for two take 132 processors as long as 264. */
static uint64_t splits_for_slots(const tsr__matmul_device *device, const tsr__matmul_config *config,
                                 const tsr__matmul_problem *p, uint64_t tiles, uint64_t most)
{
    /* k is split if the time is then less than this fraction, and into more ranges only if that
     * saves as much again */
    const double worth = 0.9, worth_more = 0.97;
    uint64_t best = 1;
    double shortest = worth * time_with_splits(config, device->processors, p, tiles, 1);
    for (uint64_t splits = 2; splits <= most; splits++) {
        const double time = time_with_splits(config, device->processors, p, tiles, splits);
        if (time < shortest) {
            best = splits;
            shortest = worth_more * time;
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
        const uint64_t longest = k / shortest, most = 8;
        splits = tiles < enough ? enough / tiles : 1;
        if (splits < most && !device->traits.few_invocations && device->processors > 0 &&
            plan->config->resident > 0)
            splits =
                splits_for_slots(device, plan->config, p, tiles, longest < most ? longest : most);
        if (splits > longest)
            splits = longest;
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
