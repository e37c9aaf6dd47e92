/* Products with tiles in shared memory (matmul_tiled.comp). These kernels support any shape if 32
 * bits suffice for the offsets within a tile. */
#include "gpu/matmul/chips.h"
#include "gpu/matmul/common/call.h"
#include "gpu/matmul/common/loads.h"
#include "gpu/matmul/kernels/kernels.h"
#include "shaders/params/matmul.h"

/* The number of bytes of shared memory that the shader uses. */
static uint32_t tile_bytes(const tsr__matmul_config *config)
{
    const uint32_t pad = 4;

    return config->bk * (config->bm + pad + config->bn + pad) * (uint32_t)sizeof(float);
}

static bool runs(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    return tile_bytes(config) <= device->max_shared_bytes;
}

static bool loads_ahead(const tsr__matmul_device *device)
{
    return device->device_class == TSR__CLASS_GPU && tsr__chip_of(device)->loads_ahead;
}

/* True if the kernel does not spill registers. 8×8 sums and loads ahead leave no registers for
 * loads of single elements, each of which needs an offset. */
static bool loads_suit(const tsr__matmul_config *config, const tsr__matmul_device *device,
                       uint32_t a_load, uint32_t b_load)
{
    bool a_vectors = a_load != TSR_MM_LOAD_SCALAR, b_vectors = b_load != TSR_MM_LOAD_SCALAR;

    if (config->vectors && config->tm * config->tn >= 64 && loads_ahead(device))
        return a_vectors && b_vectors;
    return !config->vectors || a_vectors || b_vectors;
}

static bool fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                 const tsr__matmul_problem *p)
{
    return loads_suit(config, device, tsr__matmul_a_load(p, 4), tsr__matmul_b_load(p, 4)) &&
           tsr__matmul_y_narrow(p, config->bm, config->bn) &&
           tsr__matmul_side_narrow(&p->a, tsr__matmul_min(config->bm, p->m),
                                   tsr__matmul_min(config->bk, p->k)) &&
           tsr__matmul_side_narrow(&p->b, tsr__matmul_min(config->bk, p->k),
                                   tsr__matmul_min(config->bn, p->n));
}

/* On CPU drivers, compiling a kernel for every epilogue would take longer than it saves. */
static void specialize_for_device(const tsr__matmul_device *device, tsr__matmul_variant *variant)
{
    variant->own_mode = device->device_class == TSR__CLASS_GPU;
    variant->ahead = loads_ahead(device);
}

static void specialize(const tsr__matmul_config *config, const tsr__matmul_device *device,
                       const tsr__matmul_problem *p, bool vectors, tsr__matmul_variant *variant)
{
    (void)config;
    specialize_for_device(device, variant);
    if (vectors) {
        variant->a_load = tsr__matmul_a_load(p, 4);
        variant->b_load = tsr__matmul_b_load(p, 4);
    }
}

static bool has_variant(const tsr__matmul_config *config, const tsr__matmul_device *device,
                        tsr__matmul_variant *variant)
{
    bool one = variant->rows == 1;

    variant->rows = 0;
    specialize_for_device(device, variant);
    variant->mode = TSR_DT_F32 << TSR_MM_Y_DTYPE_SHIFT | TSR_DT_F32 << TSR_MM_BIAS_DTYPE_SHIFT;
    return one && variant->a_load < TSR_MM_LOADS && variant->b_load < TSR_MM_LOADS &&
           loads_suit(config, device, variant->a_load, variant->b_load);
}

static int pipeline(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                    tsr__shader *shader, uint32_t spec[TSR__MATMUL_SPEC_MAX])
{
    int count = 0;

    *shader = TSR__SHADER_MATMUL_TILED;
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
    return count;
}

const tsr__matmul_family tsr__matmul_tiled = {
    .runs = runs,
    .fits = fits,
    .specialize = specialize,
    .has_variant = has_variant,
    .pipeline = pipeline,
    .run = tsr__matmul_run_tiles,
    .splits_k = true,
};
