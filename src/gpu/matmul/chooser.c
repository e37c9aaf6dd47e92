#include "gpu/matmul/chooser.h"

#include "base/checked.h"
#include "base/error.h"
#include "gpu/matmul/run.h"
#include "gpu/matmul/tuning/tuned.h"

#define VENDOR_NVIDIA 0x10de

static const tsr__matmul_override *forced;

void tsr__matmul_force(const tsr__matmul_override *override)
{
    forced = override;
}

const tsr__matmul_override *tsr__matmul_forced(void)
{
    return forced;
}

static uint64_t tiles_of(const tsr__matmul_config *config, const tsr__matmul_problem *p)
{
    return tsr__div_up_u64((uint64_t)p->m, config->bm) *
           tsr__div_up_u64((uint64_t)p->n, config->bn) * (uint64_t)p->batch_count;
}

/* Workgroups that keep the whole device busy. */
static uint64_t enough_tiles(const tsr__matmul_device *device)
{
    return device->device_class == TSR__CLASS_GPU ? 128 : 8;
}

/* Wherever most of a tile's rows and columns are there: these do several times the work of the
 * other kernels. */
static const char *coopmat_name(const tsr__matmul_device *device, const tsr__matmul_problem *p)
{
    const tsr__matmul_config *large = tsr__matmul_config_named("coopmat-l");
    const tsr__matmul_config *small = tsr__matmul_config_named("coopmat-s");
    const int64_t least = 32;

    if (p->m < least || p->n < least || p->k < least)
        return NULL;
    if (p->m > large->bm / 2 && p->n > large->bn / 2 && tsr__matmul_config_fits(large, device, p) &&
        tiles_of(large, p) >= enough_tiles(device))
        return large->name;
    return tsr__matmul_config_fits(small, device, p) ? small->name : NULL;
}

/* Little enough for Mesa's CPU driver that dispatches are all that counts, of which its own kernels
 * need more than one for halves and epilogues. */
static bool is_tiny(const tsr__matmul_problem *p)
{
    const double few_products = 1 << 10;
    bool one_dispatch = p->a.dtype == TSR_F32 && p->b.dtype == TSR_F32 && tsr__matmul_plain(p);

    return !one_dispatch &&
           (double)p->m * (double)p->n * (double)p->k * (double)p->batch_count < few_products;
}

static const char *usual_name(const tsr__matmul_device *device, const tsr__matmul_problem *p)
{
    static const char *const largest_first[] = {"tiled-l", "tiled-m", "tiled-s"};
    /* Only NVIDIA has the registers to make the largest tile pay without cooperative matrices. */
    int first = device->vendor_id == VENDOR_NVIDIA ? 0 : 1;

    if (device->device_class == TSR__CLASS_LAVAPIPE)
        return is_tiny(p) ? "tiled-s" : "lavapipe";
    if (device->device_class == TSR__CLASS_CPU)
        return p->m <= 4 ? "swiftshader-4" : "swiftshader-8";
    const char *coopmat = coopmat_name(device, p);
    if (coopmat)
        return coopmat;
    if (p->m <= tsr__matmul_config_named("vector-k")->bm) {
        /* Neighbouring invocations read neighbouring elements of the matrix. */
        const char *name =
            p->b.col == 1 || (p->b.row != 1 && p->b.col < p->b.row) ? "vector-col" : "vector-k";
        if (tsr__matmul_config_fits(tsr__matmul_config_named(name), device, p))
            return name;
    }
    for (int i = first; i < 2; i++) {
        const tsr__matmul_config *config = tsr__matmul_config_named(largest_first[i]);
        if (p->m > config->bm / 2 && p->n > config->bn / 2 &&
            tsr__matmul_config_fits(config, device, p) &&
            tiles_of(config, p) >= enough_tiles(device))
            return config->name;
    }
    return "tiled-s";
}

static const tsr__matmul_config *usual(const tsr__matmul_device *device,
                                       const tsr__matmul_problem *p)
{
    const tsr__matmul_config *config = tsr__matmul_config_named(usual_name(device, p));

    if (!tsr__matmul_config_fits(config, device, p))
        config = tsr__matmul_config_named("tiled-s");
    if (!tsr__matmul_config_fits(config, device, p))
        config = tsr__matmul_config_named("wide");
    return config;
}

/* With few rows all time goes into reading b, for which a large GPU needs some ten KiB under way in
 * each of its hundred or more processors: several workgroups everywhere. Their sums are small. */
static uint64_t enough_parts(const tsr__matmul_device *device, const tsr__matmul_problem *p)
{
    return enough_tiles(device) * (device->device_class == TSR__CLASS_GPU && p->m < 32 ? 4 : 1);
}

/* Cuts k where it is long and y too small to occupy the device. */
static void choose_splits(const tsr__matmul_device *device, const tsr__matmul_problem *p,
                          uint32_t at_most, tsr__matmul_plan *plan)
{
    const uint64_t shortest = 256, step = 64;
    uint64_t tiles = tiles_of(plan->config, p), k = (uint64_t)p->k;
    uint64_t splits = at_most, enough = enough_parts(device, p);

    if (splits == 0) {
        splits = tiles < enough ? enough / tiles : 1;
        if (splits > k / shortest)
            splits = k / shortest;
    }
    /* Partial sums are indexed in 32 bits and a dispatch's z counts parts of every matrix. */
    if (splits < 2 || k < 2 * step || tiles > enough || p->batch_count > 256) {
        plan->splits = 1;
        plan->k_chunk = (uint32_t)k;
        return;
    }
    uint64_t chunk = tsr__div_up_u64(tsr__div_up_u64(k, splits), step) * step;
    plan->k_chunk = (uint32_t)chunk;
    plan->splits = (uint32_t)tsr__div_up_u64(k, chunk);
}

/* What a tuning says, where it can be done: a class may hold products that its kernel is not for.
 */
static bool choose_tuned(const tsr__matmul_device *device, const tsr__matmul_problem *problem,
                         tsr__matmul_override *out)
{
    if (!tsr__tuned_find(device->tuned, problem, out))
        return false;
    const tsr__matmul_config *config = tsr__matmul_config_named(out->config);
    return config && tsr__matmul_config_fits(config, device, problem);
}

tsr_status tsr__matmul_choose(const tsr__matmul_device *device, const tsr__matmul_problem *problem,
                              const tsr__matmul_override *override, tsr__matmul_plan *out)
{
    tsr__matmul_plan plan = {.config = usual(device, problem)};
    tsr__matmul_override tuned;

    if (!override && choose_tuned(device, problem, &tuned)) {
        override = &tuned;
        plan.tuned = true;
    }
    if (override && override->config) {
        plan.config = tsr__matmul_config_named(override->config);
        if (!plan.config)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "matmul: no kernel configuration is called \"%s\"", override->config);
        if (!tsr__matmul_config_fits(plan.config, device, problem))
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "matmul: the kernel configuration %s cannot do this on this device",
                             override->config);
    }
    /* Tiles for GPUs load lane by lane on CPU drivers whatever the width; those are spared the
     * compilation of more variants. */
    bool vectors = device->device_class == TSR__CLASS_GPU || (override && override->config) ||
                   plan.config->kind == TSR__MATMUL_SWIFTSHADER;
    plan.variant = tsr__matmul_variant_for(plan.config, device, problem, vectors);
    plan.splits = 1;
    plan.k_chunk = (uint32_t)problem->k;
    if (plan.config->kind != TSR__MATMUL_WIDE && plan.config->kind != TSR__MATMUL_LAVAPIPE)
        choose_splits(device, problem, override ? override->splits : 0, &plan);
    *out = plan;
    return TSR_OK;
}
