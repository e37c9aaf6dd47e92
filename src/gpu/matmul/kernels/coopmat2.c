/* Products of f16 or bf16 with cooperative matrices that a workgroup shares (matmul_coopmat2.comp,
 * matmul_coopmat2_bf16.comp). */
#include "gpu/device/coopmat.h"
#include "gpu/matmul/common/call.h"
#include "gpu/matmul/kernels/kernels.h"
#include "shaders/params/matmul.h"

bool tsr__matmul_coopmat2_runs(const tsr__matmul_config *config, const tsr__matmul_device *device,
                               tsr_dtype dtype)
{
    const tsr__coopmat2 *shared = &device->coopmat2;
    const tsr__coopmat2_units *units = tsr__coopmat2_units_for(shared, dtype, config->threads);

    return units && config->bm % units->m == 0 && config->bn % units->n == 0 &&
           config->bk % units->k == 0 && config->bm <= shared->max_dimension &&
           config->bn <= shared->max_dimension && config->bk <= shared->max_dimension &&
           config->threads % device->coopmat_subgroup_size == 0;
}

static bool runs(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    return tsr__matmul_coopmat2_runs(config, device, TSR_F16) ||
           tsr__matmul_coopmat2_runs(config, device, TSR_BF16);
}

/* True if the kernel can load an operand as a tensor: one of its strides is 1, the other one is not
 * smaller than a line, and all lines start at multiples of 16 bytes. */
static bool is_tensor(uint32_t load, int64_t line_stride, int64_t lines, int64_t k_stride,
                      int64_t k)
{
    return (load == TSR_MM_LOAD_VEC8_K && line_stride >= k) ||
           (load == TSR_MM_LOAD_VEC8_LINE && k_stride >= lines);
}

static bool fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                 const tsr__matmul_problem *p)
{
    const tsr_dtype dtype = p->a.dtype;

    return p->b.dtype == dtype && (p->y.dtype == TSR_F32 || p->y.dtype == dtype) &&
           tsr__matmul_coopmat2_runs(config, device, dtype) &&
           is_tensor(tsr__matmul_a_load(p, 8), p->a.row, p->m, p->a.col, p->k) &&
           is_tensor(tsr__matmul_b_load(p, 8), p->b.col, p->n, p->b.row, p->k) &&
           tsr__matmul_y_narrow(p, config->bm, config->bn) &&
           tsr__matmul_side_narrow(&p->a, tsr__matmul_min(config->bm, p->m), p->k) &&
           tsr__matmul_side_narrow(&p->b, p->k, tsr__matmul_min(config->bn, p->n));
}

static void specialize(const tsr__matmul_config *config, const tsr__matmul_device *device,
                       const tsr__matmul_problem *p, bool vectors, tsr__matmul_variant *variant)
{
    (void)config, (void)device, (void)vectors;
    variant->a_load = tsr__matmul_a_load(p, 8);
    variant->b_load = tsr__matmul_b_load(p, 8);
    variant->y_aligned = p->y.dtype != TSR_F32 && tsr__matmul_side_vectors(p, &p->y, p->y.row, 8);
}

static bool is_wide(uint32_t load)
{
    return load == TSR_MM_LOAD_VEC8_K || load == TSR_MM_LOAD_VEC8_LINE;
}

static bool has_variant(const tsr__matmul_config *config, const tsr__matmul_device *device,
                        tsr__matmul_variant *variant)
{
    bool one = variant->rows == 1;

    variant->rows = 0;
    variant->mode = (uint32_t)variant->a_dtype << TSR_MM_Y_DTYPE_SHIFT |
                    (uint32_t)variant->a_dtype << TSR_MM_BIAS_DTYPE_SHIFT;
    return one && variant->a_dtype == variant->b_dtype &&
           tsr__matmul_coopmat2_runs(config, device, variant->a_dtype) &&
           is_wide(variant->a_load) && is_wide(variant->b_load);
}

/* True if the kernel can store y as a tensor: its rows are contiguous and start at multiples of 16
 * bytes. For f32, TSR_MM_Y_VECTORS means the same. */
static bool stores_tensor(const tsr__matmul_variant *variant)
{
    uint32_t dtype = variant->mode >> TSR_MM_Y_DTYPE_SHIFT & TSR_MM_FIELD_MASK;

    return (variant->mode & TSR_MM_Y_VECTORS) != 0 &&
           (dtype == TSR_DT_F32 || variant->y_aligned != 0);
}

static int pipeline(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                    tsr__shader *shader, uint32_t spec[TSR__MATMUL_SPEC_MAX])
{
    int count = 0;

    *shader = variant->a_dtype == TSR_BF16 ? TSR__SHADER_MATMUL_COOPMAT2_BF16
                                           : TSR__SHADER_MATMUL_COOPMAT2;
    spec[count++] = config->threads;
    spec[count++] = config->bm;
    spec[count++] = config->bn;
    spec[count++] = config->bk;
    spec[count++] = config->steps;
    spec[count++] = variant->a_load;
    spec[count++] = variant->b_load;
    spec[count++] = variant->mode;
    spec[count++] = stores_tensor(variant);
    spec[count++] = tsr__matmul_band(config);
    return count;
}

const tsr__matmul_family tsr__matmul_coopmat2 = {
    .runs = runs,
    .fits = fits,
    .specialize = specialize,
    .has_variant = has_variant,
    .pipeline = pipeline,
    .run = tsr__matmul_run_tiles,
    .splits_k = true,
    .tests_forms = true,
    .cpu_vectors = true, /* there are no scalar loads */
};
