/* Products of f16 or bf16 with cooperative matrices (matmul_coopmat.comp,
 * matmul_coopmat_bf16.comp). */
#include "base/checked.h"
#include "gpu/device/vendors.h"
#include "gpu/matmul/common/call.h"
#include "gpu/matmul/kernels/kernels.h"
#include "shaders/params/matmul.h"

/* RADV before Mesa 25.3 reads rows that do not start at multiples of 16 bytes in half-width
 * accesses. */
_Static_assert(TSR_MM_COOPMAT_PAD * 2 % 16 == 0, "padded rows of f16 stay aligned to 16 bytes");

/* The tiles of a and b in shared memory: BK, and how many there are of each. */
typedef struct tile_depth {
    uint32_t bk, a_tiles, b_tiles;
} tile_depth;

static tile_depth one_each(const tsr__matmul_config *config)
{
    return (tile_depth){.bk = config->bk, .a_tiles = 1, .b_tiles = 1};
}

/* The number of bytes of shared memory: the maximum for both orders in which tiles can be
 * stored. Shared memory contains the tiles of a and b in 16 bits, with padded rows. The f32 sums
 * that subgroups store together use the same memory, except for bf16, whose tiles are also aligned
 * by a member of 16 bytes. */
static uint32_t shared_bytes(const tsr__matmul_config *config, const tsr__matmul_fragment *fragment,
                             uint32_t subgroups, tsr_dtype dtype, const tile_depth *depth)
{
    const uint32_t pad = TSR_MM_COOPMAT_PAD, half = 2;
    const uint32_t bm = depth->a_tiles * config->bm, bn = depth->b_tiles * config->bn;
    uint32_t lines = (bm + bn) * (depth->bk + pad);
    uint32_t along = depth->bk * (bm + bn + (depth->a_tiles + depth->b_tiles) * pad);
    uint32_t tiles =
        (lines > along ? lines : along) * half * (config->buffers ? config->buffers : 1);
    uint32_t stage =
        subgroups * fragment->m * fragment->n * fragment->staged * (uint32_t)sizeof(float);

    if (dtype == TSR_BF16)
        return tiles + stage + 16;
    return tiles > stage ? tiles : stage;
}

/* The number of rows in which a workgroup's subgroups are arranged. A subgroup's tile is made as
 * square as possible, because its loads are proportional to its sides and its products to its area.
 * The result is 0 if no arrangement gives every subgroup complete fragments. */
static uint32_t rows_of(const tsr__matmul_config *config, const tsr__matmul_fragment *fragment,
                        uint32_t subgroups)
{
    uint32_t best = 0, least = UINT32_MAX;

    for (uint32_t rows = 1; rows <= subgroups; rows *= 2) {
        uint32_t across = subgroups / rows;
        if (rows * across != subgroups || config->bm % (rows * fragment->m) != 0 ||
            config->bn % (across * fragment->n) != 0)
            continue;
        uint32_t sides = config->bm / rows + config->bn / across;
        if (sides < least) {
            best = rows;
            least = sides;
        }
    }
    return best;
}

/* A compute unit of RDNA has 64 KiB of shared memory, and executes two
 * workgroups only if both fit. */
#define RDNA_SHARED_BYTES 65536u

uint32_t tsr__matmul_shared_limit(const tsr__matmul_device *device)
{
    return device->vendor_id == TSR__VENDOR_AMD
               ? tsr__min_u32(RDNA_SHARED_BYTES / 2, device->max_shared_bytes)
               : device->max_shared_bytes;
}

static bool two_fit(const tsr__matmul_config *config, const tsr__matmul_fragment *fragment,
                    uint32_t subgroups, tsr_dtype dtype)
{
    const tile_depth depth = one_each(config);
    return 2 * shared_bytes(config, fragment, subgroups, dtype, &depth) <= RDNA_SHARED_BYTES;
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
    /* AMD's GPUs need tiles that are transposed when they are stored. NVIDIA's GPUs transpose
     * fragments while they read them. Intel's compiler would transpose before the products, which
     * then wait for the loads. CPU drivers do the same as AMD's GPUs, to test it. */
    out.along_k = device->vendor_id == TSR__VENDOR_AMD || device->traits.not_a_chip;
    uint32_t subgroups = config->threads / out.subgroup_size;
    out.down = rows_of(config, &out, subgroups);
    if (subgroups > device->max_subgroups || out.down == 0 || config->bk % out.k != 0)
        return none;
    /* Store a row of a subgroup's fragments together if shared memory has room for it, because
     * fewer rounds of storing execute the epilogue less often. It is more important, however, that
     * a second workgroup has room. */
    out.staged = config->bn / (subgroups / out.down) / out.n;
    const tile_depth depth = one_each(config);
    tsr__matmul_fragment narrow = out;
    narrow.staged = 1;
    bool occupies = device->vendor_id == TSR__VENDOR_AMD &&
                    !two_fit(config, &out, subgroups, dtype) &&
                    two_fit(config, &narrow, subgroups, dtype);
    if (occupies || shared_bytes(config, &out, subgroups, dtype, &depth) > device->max_shared_bytes)
        out = narrow;
    return shared_bytes(config, &out, subgroups, dtype, &depth) > device->max_shared_bytes ? none
                                                                                           : out;
}

/* The largest number of elements of the next tiles that an invocation has in registers; with more,
 * coopmat-xl spills (Mesa's compiler for NVIDIA). */
#define LOADED_MAX 64

/* Sets variant->depth to the largest BK, that of the configuration or a part of it, for which
 * shared memory has room for the tiles of all terms, on AMD's GPUs of two workgroups. A subgroup
 * then stores only one fragment at a time if it must. Intel's compiler keeps the fragments of a
 * step in registers, which have room for those of three terms at the configuration's depth. */
static void set_depth(const tsr__matmul_config *config, const tsr__matmul_device *device,
                      tsr__matmul_variant *variant)
{
    const uint32_t limit = tsr__matmul_shared_limit(device);
    tsr__matmul_fragment *fragment = &variant->fragment;
    tsr__matmul_fragment narrow = *fragment;

    narrow.staged = 1;
    variant->depth = 0;
    if (variant->a_terms + variant->b_terms <= 2)
        return;
    const uint32_t subgroups = config->threads / fragment->subgroup_size;
    const bool halves =
        device->vendor_id == TSR__VENDOR_INTEL && variant->a_terms + variant->b_terms > 3;
    for (uint32_t bk = halves ? config->bk / 2 : config->bk;
         bk >= config->bk / 4 && bk % fragment->k == 0; bk /= 2) {
        const tile_depth depth = {
            .bk = bk, .a_tiles = variant->a_terms, .b_tiles = variant->b_terms};
        const uint32_t lines = depth.a_tiles * config->bm + depth.b_tiles * config->bn;
        if (lines * bk > LOADED_MAX * config->threads ||
            shared_bytes(config, &narrow, subgroups, variant->a_dtype, &depth) > limit)
            continue;
        if (shared_bytes(config, fragment, subgroups, variant->a_dtype, &depth) > limit)
            *fragment = narrow;
        variant->depth = bk;
        return;
    }
}

static bool runs(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    return tsr__matmul_fragment_for(config, device, TSR_F16).m > 0 ||
           tsr__matmul_fragment_for(config, device, TSR_BF16).m > 0;
}

static bool fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                 const tsr__matmul_problem *p)
{
    return p->a.dtype == p->b.dtype && tsr__matmul_fragment_for(config, device, p->a.dtype).m > 0 &&
           tsr__matmul_y_narrow(p, config->bm, config->bn) &&
           tsr__matmul_side_narrow(&p->a, tsr__matmul_min(config->bm, p->m),
                                   tsr__matmul_min(config->bk, p->k)) &&
           tsr__matmul_side_narrow(&p->b, tsr__matmul_min(config->bk, p->k),
                                   tsr__matmul_min(config->bn, p->n));
}

/* Chooses the order of a tile that is loaded element by element: that in which the elements are
 * contiguous, or closest to each other, in memory. */
static uint32_t scalar_load(int64_t line, int64_t k)
{
    return line > 0 && (k == 0 || line < k) ? TSR_MM_LOAD_SCALAR_LINE : TSR_MM_LOAD_SCALAR;
}

static void specialize(const tsr__matmul_config *config, const tsr__matmul_device *device,
                       const tsr__matmul_problem *p, bool vectors, tsr__matmul_variant *variant)
{
    variant->fragment = tsr__matmul_fragment_for(config, device, p->a.dtype);
    variant->a_terms = p->a_terms > 0 ? p->a_terms : 1;
    variant->b_terms = p->b_terms > 0 ? p->b_terms : 1;
    set_depth(config, device, variant);
    if (vectors) {
        variant->a_load = tsr__matmul_a_tile_load(p, 8);
        variant->b_load = tsr__matmul_b_tile_load(p, 8);
    }
    if (variant->a_load == TSR_MM_LOAD_SCALAR)
        variant->a_load = scalar_load(p->a.row, p->a.col);
    if (variant->b_load == TSR_MM_LOAD_SCALAR)
        variant->b_load = scalar_load(p->b.col, p->b.row);
}

static bool has_variant(const tsr__matmul_config *config, const tsr__matmul_device *device,
                        tsr__matmul_variant *variant)
{
    bool one = variant->rows == 1;

    variant->rows = 0;
    variant->a_terms = variant->b_terms = 1;
    variant->fragment = tsr__matmul_fragment_for(config, device, variant->a_dtype);
    variant->mode = (uint32_t)variant->a_dtype << TSR_MM_Y_DTYPE_SHIFT |
                    (uint32_t)variant->a_dtype << TSR_MM_BIAS_DTYPE_SHIFT;
    return one && variant->a_dtype == variant->b_dtype && variant->fragment.m > 0;
}

static int pipeline(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                    tsr__shader *shader, uint32_t spec[TSR__MATMUL_SPEC_MAX])
{
    const tsr__matmul_fragment *fragment = &variant->fragment;
    int count = 0;

    *shader =
        variant->a_dtype == TSR_BF16 ? TSR__SHADER_MATMUL_COOPMAT_BF16 : TSR__SHADER_MATMUL_COOPMAT;
    spec[count++] = config->threads;
    spec[count++] = fragment->subgroup_size;
    spec[count++] = fragment->down;
    spec[count++] = config->bm;
    spec[count++] = config->bn;
    spec[count++] = variant->depth > 0 ? variant->depth : config->bk;
    spec[count++] = fragment->m;
    spec[count++] = fragment->n;
    spec[count++] = fragment->k;
    spec[count++] = fragment->staged;
    spec[count++] = variant->a_load;
    spec[count++] = variant->b_load;
    spec[count++] = config->buffers ? config->buffers : 1;
    spec[count++] = variant->mode;
    spec[count++] = fragment->along_k;
    spec[count++] = variant->a_terms;
    spec[count++] = variant->b_terms;
    spec[count++] = tsr__matmul_band(config);
    spec[count++] = variant->depth > 0;
    return count;
}

static bool sums_rows(const tsr__matmul_plan *plan)
{
    return plan->variant.a_terms <= 1;
}

const tsr__matmul_family tsr__matmul_coopmat = {
    .runs = runs,
    .fits = fits,
    .specialize = specialize,
    .has_variant = has_variant,
    .pipeline = pipeline,
    .run = tsr__matmul_run_tiles,
    .splits_k = true,
    .fuses_tiles = true,
    .sums_rows = sums_rows,
    .narrows = true,
};
