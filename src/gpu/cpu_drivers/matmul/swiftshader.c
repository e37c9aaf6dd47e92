/* Products on SwiftShader: a subgroup of four invocations computes a tile
 * (shaders/cpu_drivers/matmul_swiftshader.glsl). */
#include "gpu/cpu_drivers/matmul/families.h"
#include "gpu/matmul/common/call.h"
#include "shaders/params/matmul.h"

static bool runs(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    (void)config;
    return device->traits.device_class == TSR__CLASS_CPU && device->subgroup_size == 4 &&
           device->quads;
}

/* True if 32-bit strides suffice. The kernel adds them to a 64-bit address of each line as it steps
 * along k. */
static bool fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                 const tsr__matmul_problem *p)
{
    (void)device;
    return tsr__matmul_y_narrow(p, config->bm, config->bn) &&
           tsr__matmul_side_narrow(&p->a, 1, p->k) && tsr__matmul_side_narrow(&p->b, p->k, 1);
}

static void specialize(const tsr__matmul_config *config, const tsr__matmul_device *device,
                       const tsr__matmul_problem *p, bool vectors, tsr__matmul_variant *variant)
{
    (void)config;
    (void)device;
    if (!vectors)
        return;
    /* Vectors of a are loaded along k only. One across four neighbouring rows would hold elements
     * of four vectors of a lane, but a lane has only one or two (AV in the shader). */
    if (tsr__matmul_a_load(p, 4) == TSR_MM_LOAD_VEC_K)
        variant->a_load = TSR_MM_LOAD_VEC_K;
    variant->b_load = tsr__matmul_b_load(p, 4);
}

static bool has_variant(const tsr__matmul_config *config, const tsr__matmul_device *device,
                        tsr__matmul_variant *variant)
{
    bool one = variant->rows == 1;

    (void)config;
    (void)device;
    variant->rows = 0;
    return one && variant->a_load < TSR_MM_LOADS && variant->b_load < TSR_MM_LOADS &&
           variant->a_load != TSR_MM_LOAD_VEC_LINE;
}

static int pipeline(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                    tsr__shader *shader, uint32_t spec[TSR__MATMUL_SPEC_MAX])
{
    int count = 0;

    *shader = config->tm == 4 ? TSR__SHADER_MATMUL_SWIFTSHADER4 : TSR__SHADER_MATMUL_SWIFTSHADER8;
    spec[count++] = variant->a_dtype;
    spec[count++] = variant->b_dtype;
    spec[count++] = variant->a_load;
    spec[count++] = variant->b_load;
    return count;
}

const tsr__matmul_family tsr__matmul_swiftshader = {
    .runs = runs,
    .fits = fits,
    .specialize = specialize,
    .has_variant = has_variant,
    .pipeline = pipeline,
    .run = tsr__matmul_run_tiles,
    .splits_k = true,
    .cpu_vectors = true,
};
