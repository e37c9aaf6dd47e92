/* Products with tiles in shared memory: matmul_tiled.comp, and for f16 matmul_pairs.comp and
 * matmul_dot2.comp. These kernels support any shape if 32 bits suffice for the offsets within a
 * tile. */
#include "gpu/matmul/chip_tiles.h"
#include "gpu/matmul/common/call.h"
#include "gpu/matmul/kernels/kernels.h"
#include "shaders/params/matmul.h"

/* The number of bytes of shared memory that the shader uses. Two f16 elements share a word. */
static uint32_t tile_bytes(const tsr__matmul_config *config)
{
    const uint32_t pad = 4;
    uint32_t rows = config->family == &tsr__matmul_pairs ? config->bk / 2 : config->bk;

    return rows * (config->bm + pad + config->bn + pad) * (uint32_t)sizeof(float);
}

/* On GPUs without the instruction for two products, the kernels for pairs are not faster, and some
 * variants spill registers. On CPU drivers, tests run them. */
static bool runs(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    if (config->family == &tsr__matmul_pairs && !device->traits.not_a_chip && !device->dot2)
        return false;
    return tile_bytes(config) <= device->max_shared_bytes;
}

static tsr__loads_ahead loads_ahead(const tsr__matmul_device *device)
{
    return device->traits.not_a_chip ? TSR__LOADS_WAIT : tsr__chip_of(device)->loads_ahead;
}

/* True if the kernel does not spill registers. With 8×8 sums and loads_ahead, no registers are left
 * for loads of single elements, each of which needs an offset. */
static bool loads_suit(const tsr__matmul_config *config, const tsr__matmul_device *device,
                       uint32_t a_load, uint32_t b_load)
{
    bool a_vectors = a_load != TSR_MM_LOAD_SCALAR, b_vectors = b_load != TSR_MM_LOAD_SCALAR;

    if (config->vectors && config->tm * config->tn >= 64 &&
        loads_ahead(device) == TSR__LOADS_AHEAD_UNROLLED)
        return a_vectors && b_vectors;
    return !config->vectors || a_vectors || b_vectors;
}

/* The largest number of elements of a load. The two elements of a pair can come from two loads
 * (matmul_pairs_fetch.glsl). Loads of eight are therefore possible only if each invocation loads at
 * least sixteen elements of each operand. */
static int64_t load_width(const tsr__matmul_config *config)
{
    uint32_t lines = config->bm < config->bn ? config->bm : config->bn;
    bool eights = lines * config->bk >= 16 * config->threads;

    return config->family == &tsr__matmul_pairs && eights ? 8 : 4;
}

static bool multiplies(const tsr__matmul_config *config, tsr_dtype a, tsr_dtype b)
{
    return config->family != &tsr__matmul_pairs || (a == TSR_F16 && b == TSR_F16);
}

static bool fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                 const tsr__matmul_problem *p)
{
    const int64_t width = load_width(config);

    return multiplies(config, p->a.dtype, p->b.dtype) &&
           loads_suit(config, device, tsr__matmul_a_tile_load(p, width),
                      tsr__matmul_b_tile_load(p, width)) &&
           tsr__matmul_y_narrow(p, config->bm, config->bn) &&
           tsr__matmul_side_narrow(&p->a, tsr__matmul_min(config->bm, p->m),
                                   tsr__matmul_min(config->bk, p->k)) &&
           tsr__matmul_side_narrow(&p->b, tsr__matmul_min(config->bk, p->k),
                                   tsr__matmul_min(config->bn, p->n));
}

/* Sets what depends on the device and the loads. On CPU drivers, compiling a kernel for every
 * epilogue would take longer than it saves. */
static void specialize_for_device(const tsr__matmul_config *config,
                                  const tsr__matmul_device *device, tsr__matmul_variant *variant)
{
    variant->own_mode = !device->traits.slow_pipelines;
    variant->ahead = loads_ahead(device);
    /* Loads of single elements need an offset each, for which there may be no registers. */
    if (variant->ahead == TSR__LOADS_AHEAD &&
        (variant->a_load == TSR_MM_LOAD_SCALAR || variant->b_load == TSR_MM_LOAD_SCALAR))
        variant->ahead = TSR__LOADS_WAIT;
    variant->dot2 = config->family == &tsr__matmul_pairs && device->dot2;
}

static void specialize(const tsr__matmul_config *config, const tsr__matmul_device *device,
                       const tsr__matmul_problem *p, bool vectors, tsr__matmul_variant *variant)
{
    if (vectors) {
        variant->a_load = tsr__matmul_a_tile_load(p, load_width(config));
        variant->b_load = tsr__matmul_b_tile_load(p, load_width(config));
    }
    specialize_for_device(config, device, variant);
}

/* True if tsr__matmul_a_tile_load() and tsr__matmul_b_tile_load() can return `load`. */
static bool has_load(const tsr__matmul_config *config, uint32_t load)
{
    return load < TSR_MM_LOADS || (load_width(config) == 8 &&
                                   (load == TSR_MM_LOAD_VEC8_K || load == TSR_MM_LOAD_VEC8_LINE));
}

static bool has_variant(const tsr__matmul_config *config, const tsr__matmul_device *device,
                        tsr__matmul_variant *variant)
{
    bool one = variant->rows == 1;

    variant->rows = 0;
    specialize_for_device(config, device, variant);
    variant->mode = TSR_DT_F32 << TSR_MM_Y_DTYPE_SHIFT | TSR_DT_F32 << TSR_MM_BIAS_DTYPE_SHIFT;
    return one && multiplies(config, variant->a_dtype, variant->b_dtype) &&
           has_load(config, variant->a_load) && has_load(config, variant->b_load) &&
           loads_suit(config, device, variant->a_load, variant->b_load);
}

static int pipeline(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                    tsr__shader *shader, uint32_t spec[TSR__MATMUL_SPEC_MAX])
{
    int count = 0;

    *shader = config->family != &tsr__matmul_pairs ? TSR__SHADER_MATMUL_TILED
              : variant->dot2                      ? TSR__SHADER_MATMUL_DOT2
                                                   : TSR__SHADER_MATMUL_PAIRS;
    spec[count++] = config->threads;
    spec[count++] = config->bm;
    spec[count++] = config->bn;
    spec[count++] = config->bk;
    spec[count++] = config->tm;
    spec[count++] = config->tn;
    spec[count++] = variant->a_dtype;
    spec[count++] = variant->b_dtype;
    spec[count++] = variant->a_load;
    spec[count++] = variant->b_load;
    spec[count++] = variant->ahead;
    spec[count++] = variant->own_mode ? variant->mode : TSR_MM_MODE_PUSHED;
    spec[count++] = tsr__matmul_band(config);
    return count;
}

/* An invocation adds up the rows of a that it loads, which must be the same in all steps. */
static bool sums_rows(const tsr__matmul_plan *plan)
{
    return plan->variant.own_mode && plan->variant.a_load == TSR_MM_LOAD_VEC_LINE &&
           plan->config->threads % (plan->config->bm / 4) == 0;
}

const tsr__matmul_family tsr__matmul_tiled = {
    .runs = runs,
    .fits = fits,
    .specialize = specialize,
    .has_variant = has_variant,
    .pipeline = pipeline,
    .run = tsr__matmul_run_tiles,
    .splits_k = true,
    .fuses_tiles = true,
    .sums_rows = sums_rows,
};

const tsr__matmul_family tsr__matmul_pairs = {
    .runs = runs,
    .fits = fits,
    .specialize = specialize,
    .has_variant = has_variant,
    .pipeline = pipeline,
    .run = tsr__matmul_run_tiles,
    .splits_k = true,
    .fuses_tiles = true,
};
