#include "gpu/matmul/coopmat.h"

#include "shaders/params/matmul.h"

/* Shared memory: the tiles of a and b in 16 bits, each row padded, whichever way they lie, and what
 * subgroups store together in f32. */
static uint32_t shared_bytes(const tsr__matmul_config *config, const tsr__matmul_fragment *fragment,
                             uint32_t subgroups)
{
    const uint32_t pad = TSR_MM_COOPMAT_PAD, half = 2;
    uint32_t lines = (config->bm + config->bn) * (config->bk + pad);
    uint32_t along = config->bk * (config->bm + config->bn + 2 * pad);
    uint32_t tiles = (lines > along ? lines : along) * half;
    uint32_t stage = subgroups * fragment->m * fragment->n * fragment->staged;

    return tiles + stage * (uint32_t)sizeof(float);
}

/* As square an arrangement as there is: what a subgroup loads grows with its tile's sides, what it
 * multiplies with the area. */
static uint32_t rows_of(uint32_t subgroups)
{
    uint32_t rows = 1;

    while (4 * rows * rows <= subgroups)
        rows *= 2;
    return rows;
}

tsr__matmul_fragment tsr__matmul_fragment_for(const tsr__matmul_config *config,
                                              const tsr__matmul_device *device, tsr_dtype dtype)
{
    const tsr__matmul_fragment none = {0};
    tsr_coopmat_shape shape = dtype == TSR_F16    ? device->coopmat
                              : dtype == TSR_BF16 ? device->coopmat_bf16
                                                  : (tsr_coopmat_shape){0};
    tsr__matmul_fragment out = {
        .m = shape.m, .n = shape.n, .k = shape.k, .subgroup_size = device->coopmat_subgroup_size};

    if (out.m == 0 || out.n == 0 || out.k == 0 || out.subgroup_size == 0 ||
        config->threads % out.subgroup_size != 0)
        return none;
    uint32_t subgroups = config->threads / out.subgroup_size;
    out.down = rows_of(subgroups);
    uint32_t across = subgroups / out.down;
    uint32_t tile_m = config->bm / out.down, tile_n = config->bn / across;
    if (subgroups > device->max_subgroups || out.down * across != subgroups ||
        tile_m % out.m != 0 || tile_n % out.n != 0 || config->bk % out.k != 0)
        return none;
    /* A row of a subgroup's fragments together where there is room: the epilogue's code is there
     * once for each time. */
    out.staged = tile_n / out.n;
    if (shared_bytes(config, &out, subgroups) > device->max_shared_bytes)
        out.staged = 1;
    return shared_bytes(config, &out, subgroups) > device->max_shared_bytes ? none : out;
}

int tsr__matmul_coopmat_spec(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                             uint32_t spec[])
{
    const tsr__matmul_fragment *fragment = &variant->fragment;
    int count = 0;

    spec[count++] = config->threads;
    spec[count++] = fragment->subgroup_size;
    spec[count++] = fragment->down;
    spec[count++] = config->bm;
    spec[count++] = config->bn;
    spec[count++] = config->bk;
    spec[count++] = fragment->m;
    spec[count++] = fragment->n;
    spec[count++] = fragment->k;
    spec[count++] = fragment->staged;
    spec[count++] = variant->a_load;
    spec[count++] = variant->b_load;
    return count;
}
