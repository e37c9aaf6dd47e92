/* Products of a few rows: matmul_vector_k.comp and matmul_vector_col.comp, which step along k with
 * 32-bit strides. They need at most 16 KiB of shared memory, which every device has. */
#include "gpu/matmul/common/call.h"
#include "gpu/matmul/kernels/kernels.h"
#include "shaders/params/matmul.h"

static bool runs(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    (void)config;
    (void)device;
    return true;
}

static bool fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                 const tsr__matmul_problem *p)
{
    (void)device;
    return p->m <= config->bm && tsr__matmul_y_narrow(p, config->bm, config->bn) &&
           tsr__matmul_side_narrow(&p->a, p->m, p->k) &&
           tsr__matmul_side_narrow(&p->b, p->k, tsr__matmul_min(config->bn, p->n));
}

static uint32_t rows_at_least(int64_t m)
{
    uint32_t rows = 1;

    while (rows < m && rows < 16)
        rows *= 2;
    return rows;
}

uint32_t tsr__matmul_subgroup_of(const tsr__matmul_device *device, uint32_t threads)
{
    const bool sums = device->subgroup_sums && !device->traits.few_invocations &&
                      device->subgroup_size_min >= 4 && device->subgroup_size_max > 0 &&
                      threads % device->subgroup_size_max == 0;
    return sums ? device->subgroup_size_min : 0;
}

static void specialize_k(const tsr__matmul_config *config, const tsr__matmul_device *device,
                         const tsr__matmul_problem *p, bool vectors, tsr__matmul_variant *variant)
{
    const int64_t a_width = p->a.dtype == TSR_F32 ? 4 : 8;
    variant->rows = rows_at_least(p->m);
    variant->subgroup = tsr__matmul_subgroup_of(device, config->threads);
    if (!vectors || tsr__matmul_a_load(p, 4) != TSR_MM_LOAD_VEC_K ||
        tsr__matmul_b_load(p, 4) != TSR_MM_LOAD_VEC_K)
        return;
    const bool eight =
        p->b.dtype != TSR_F32 &&
        tsr__matmul_a_load(p, a_width) == (a_width == 8 ? TSR_MM_LOAD_VEC8_K : TSR_MM_LOAD_VEC_K) &&
        tsr__matmul_b_load(p, 8) == TSR_MM_LOAD_VEC8_K;
    variant->a_load = variant->b_load = eight ? TSR_MM_LOAD_VEC8_K : TSR_MM_LOAD_VEC_K;
}

static void specialize_col(const tsr__matmul_config *config, const tsr__matmul_device *device,
                           const tsr__matmul_problem *p, bool vectors, tsr__matmul_variant *variant)
{
    (void)config;
    (void)device;
    variant->rows = rows_at_least(p->m);
    if (vectors && tsr__matmul_b_load(p, 4) == TSR_MM_LOAD_VEC_LINE)
        variant->b_load = TSR_MM_LOAD_VEC_LINE;
}

/* True if the configuration has enough rows for the variant and no configuration with fewer rows
 * has enough. */
static bool has_rows(const tsr__matmul_config *config, const tsr__matmul_variant *variant)
{
    return config->bm <= 8 ? variant->rows <= config->bm : variant->rows == config->bm;
}

static bool has_variant_k(const tsr__matmul_config *config, const tsr__matmul_device *device,
                          tsr__matmul_variant *variant)
{
    variant->subgroup = tsr__matmul_subgroup_of(device, config->threads);
    return has_rows(config, variant) && variant->a_load == variant->b_load &&
           (variant->a_load == TSR_MM_LOAD_SCALAR || variant->a_load == TSR_MM_LOAD_VEC_K ||
            (variant->a_load == TSR_MM_LOAD_VEC8_K && variant->b_dtype != TSR_F32));
}

static bool has_variant_col(const tsr__matmul_config *config, const tsr__matmul_device *device,
                            tsr__matmul_variant *variant)
{
    (void)device;
    return has_rows(config, variant) && variant->a_load == TSR_MM_LOAD_SCALAR &&
           (variant->b_load == TSR_MM_LOAD_SCALAR || variant->b_load == TSR_MM_LOAD_VEC_LINE);
}

static int pipeline(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                    tsr__shader *shader, uint32_t spec[TSR__MATMUL_SPEC_MAX])
{
    bool along_k = config->family == &tsr__matmul_vector_k;
    int count = 0;

    *shader = along_k ? TSR__SHADER_MATMUL_VECTOR_K : TSR__SHADER_MATMUL_VECTOR_COL;
    spec[count++] = variant->threads ? variant->threads : config->threads;
    spec[count++] = variant->rows;
    spec[count++] = along_k ? config->bn : config->bn / config->tn;
    spec[count++] = variant->a_dtype;
    spec[count++] = variant->b_dtype;
    spec[count++] = variant->b_load;
    if (along_k)
        spec[count++] = variant->subgroup;
    return count;
}

static bool gates(const tsr__matmul_problem *p)
{
    return p->k > 0 && p->batch_dims == 0 && tsr__matmul_side_narrow(&p->b, p->k, 2 * p->n);
}

/* With more rows, a norm of its own costs less than that each workgroup reads the weight and adds
 * up the squares of the rows. */
#define NORM_MAX_ROWS 4

static bool normalises(const tsr__matmul_problem *p)
{
    return p->k > 0 && p->m <= NORM_MAX_ROWS && p->batch_dims == 0 &&
           tsr__matmul_a_load(p, 4) == TSR_MM_LOAD_VEC_K &&
           tsr__matmul_b_load(p, 4) == TSR_MM_LOAD_VEC_K;
}

const tsr__matmul_family tsr__matmul_vector_k = {
    .runs = runs,
    .fits = fits,
    .specialize = specialize_k,
    .has_variant = has_variant_k,
    .pipeline = pipeline,
    .run = tsr__matmul_run_tiles,
    .gates = gates,
    .normalises = normalises,
    .splits_k = true,
    .widens = true,
};

const tsr__matmul_family tsr__matmul_vector_col = {
    .runs = runs,
    .fits = fits,
    .specialize = specialize_col,
    .has_variant = has_variant_col,
    .pipeline = pipeline,
    .run = tsr__matmul_run_tiles,
    .splits_k = true,
    .widens = true,
};
