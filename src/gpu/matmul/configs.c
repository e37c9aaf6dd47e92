#include "gpu/matmul/configs.h"

#include <string.h>

#include "base/checked.h"
#include "gpu/cpu_drivers/matmul/lavapipe.h"
#include "gpu/matmul/coopmat.h"
#include "shaders/params/matmul.h"

static const tsr__matmul_config configs[] = {
    {"tiled-l", TSR__MATMUL_TILED, .threads = 256, .bm = 128, .bn = 128, .bk = 16, .tm = 8, .tn = 8,
     .vectors = true},
    {"tiled-m", TSR__MATMUL_TILED, .threads = 256, .bm = 64, .bn = 64, .bk = 16, .tm = 4, .tn = 4},
    {"tiled-s", TSR__MATMUL_TILED, .threads = 64, .bm = 32, .bn = 32, .bk = 16, .tm = 4, .tn = 4},
    /* Chosen by a tuning only: longer steps, and tiles for a short side. */
    {"tiled-128x64", TSR__MATMUL_TILED, .threads = 256, .bm = 128, .bn = 64, .bk = 16, .tm = 8,
     .tn = 4, .vectors = true},
    {"tiled-64x128", TSR__MATMUL_TILED, .threads = 256, .bm = 64, .bn = 128, .bk = 16, .tm = 4,
     .tn = 8, .vectors = true},
    {"tiled-m-k32", TSR__MATMUL_TILED, .threads = 256, .bm = 64, .bn = 64, .bk = 32, .tm = 4,
     .tn = 4, .vectors = true},
    {"tiled-32x64", TSR__MATMUL_TILED, .threads = 128, .bm = 32, .bn = 64, .bk = 16, .tm = 4,
     .tn = 4},
    {"vector-k", TSR__MATMUL_VECTOR_K, .threads = 64, .bm = 8, .bn = 4, .bk = 4, .tm = 8, .tn = 4},
    {"vector-col", TSR__MATMUL_VECTOR_COL, .threads = 128, .bm = 8, .bn = 64, .bk = 8, .tm = 8,
     .tn = 4},
    {"wide", TSR__MATMUL_WIDE, .threads = 64, .bm = 1, .bn = 64, .bk = 1, .tm = 1, .tn = 1},
    {"lavapipe", TSR__MATMUL_LAVAPIPE, .threads = 8, .bm = 8, .bn = 4, .bk = 8, .tm = 8, .tn = 4},
    {"swiftshader-4", TSR__MATMUL_SWIFTSHADER, .threads = 4, .bm = 4, .bn = 32, .bk = 4, .tm = 4,
     .tn = 8, .stores_plain = true},
    {"swiftshader-8", TSR__MATMUL_SWIFTSHADER, .threads = 4, .bm = 8, .bn = 32, .bk = 4, .tm = 8,
     .tn = 8, .stores_plain = true},
    {"coopmat-l", TSR__MATMUL_COOPMAT, .threads = 256, .bm = 128, .bn = 128, .bk = 32},
    {"coopmat-s", TSR__MATMUL_COOPMAT, .threads = 128, .bm = 64, .bn = 64, .bk = 32},
};
#define CONFIGS ((int)(sizeof configs / sizeof *configs))

const tsr__matmul_config *tsr__matmul_config_at(int index)
{
    return index >= 0 && index < CONFIGS ? &configs[index] : NULL;
}

const tsr__matmul_config *tsr__matmul_config_named(const char *name)
{
    for (int i = 0; i < CONFIGS; i++)
        if (strcmp(configs[i].name, name) == 0)
            return &configs[i];
    return NULL;
}

static tsr_coopmat_shape shape_used(const tsr_device *device, int index)
{
    if (device->storage != TSR__STORAGE_S16 || index < 0)
        return (tsr_coopmat_shape){0};
    return device->info.coopmats[index];
}

tsr__matmul_device tsr__matmul_device_of(const tsr_device *device)
{
    return (tsr__matmul_device){
        .device_class = device->device_class,
        .vendor_id = device->info.vendor_id,
        .max_invocations = device->info.max_workgroup_invocations,
        .max_shared_bytes = device->info.max_shared_memory_bytes,
        .subgroup_size = device->info.subgroup_size,
        .quads = device->subgroup_quads,
        .int64 = device->info.int64,
        .coopmat = shape_used(device, device->info.coopmat_used),
        .coopmat_bf16 = shape_used(device, device->info.coopmat_bf16_used),
        .coopmat_subgroup_size = device->info.coopmat_subgroup_size,
        .max_subgroups = device->max_workgroup_subgroups,
        .tuned = device->tuned,
    };
}

/* Shared memory of matmul_tiled.comp. */
static uint32_t tile_bytes(const tsr__matmul_config *config)
{
    const uint32_t pad = 4;

    return config->bk * (config->bm + pad + config->bn + pad) * (uint32_t)sizeof(float);
}

bool tsr__matmul_config_runs(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    if (config->threads > device->max_invocations)
        return false;
    switch (config->kind) {
    case TSR__MATMUL_TILED:
        return tile_bytes(config) <= device->max_shared_bytes;
    case TSR__MATMUL_LAVAPIPE:
        return tsr__lavapipe_runs(device);
    case TSR__MATMUL_SWIFTSHADER:
        return device->device_class == TSR__CLASS_CPU && device->subgroup_size == 4 &&
               device->quads;
    case TSR__MATMUL_COOPMAT:
        return tsr__matmul_fragment_for(config, device, TSR_F16).m > 0 ||
               tsr__matmul_fragment_for(config, device, TSR_BF16).m > 0;
    case TSR__MATMUL_VECTOR_K:
    case TSR__MATMUL_VECTOR_COL: /* at most 16 KiB, which every device has */
    case TSR__MATMUL_WIDE:
        break;
    }
    return true;
}

static bool side_narrow(const tsr__matmul_side *side, int64_t rows, int64_t cols)
{
    return side->row <= (int64_t)UINT32_MAX && side->col <= (int64_t)UINT32_MAX &&
           tsr__matmul_side_within(side, rows, cols);
}

/* `line` is the stride along a's rows or b's columns, `k` the one along the products. */
static uint32_t load_mode(const tsr__matmul_problem *p, const tsr__matmul_side *side, int64_t line,
                          int64_t lines, int64_t k)
{
    if (k == 1 && p->k % 4 == 0 && tsr__matmul_side_vectors(p, side, line))
        return TSR_MM_LOAD_VEC_K;
    if (line == 1 && lines % 4 == 0 && tsr__matmul_side_vectors(p, side, k))
        return TSR_MM_LOAD_VEC_LINE;
    return TSR_MM_LOAD_SCALAR;
}

static bool lanes_along_line(int64_t line, int64_t k)
{
    return line > 0 && (k == 0 || line < k);
}

static uint32_t rows_at_least(int64_t m)
{
    uint32_t rows = 1;

    while (rows < m && rows < 8)
        rows *= 2;
    return rows;
}

static void choose_loads(const tsr__matmul_config *config, const tsr__matmul_problem *p,
                         tsr__matmul_variant *variant)
{
    uint32_t a_load = load_mode(p, &p->a, p->a.row, p->m, p->a.col);
    uint32_t b_load = load_mode(p, &p->b, p->b.col, p->n, p->b.row);
    if (config->kind == TSR__MATMUL_TILED || config->kind == TSR__MATMUL_COOPMAT) {
        variant->a_load = a_load;
        variant->b_load = b_load;
    } else if (config->kind == TSR__MATMUL_VECTOR_K && a_load == TSR_MM_LOAD_VEC_K &&
               b_load == TSR_MM_LOAD_VEC_K) {
        variant->a_load = variant->b_load = TSR_MM_LOAD_VEC_K;
    } else if (config->kind == TSR__MATMUL_VECTOR_COL && b_load == TSR_MM_LOAD_VEC_LINE) {
        variant->b_load = TSR_MM_LOAD_VEC_LINE;
    } else if (config->kind == TSR__MATMUL_SWIFTSHADER) {
        /* Four neighbouring rows would fill four vectors of a lane, which has one or two. */
        variant->a_load = a_load == TSR_MM_LOAD_VEC_K ? a_load : TSR_MM_LOAD_SCALAR;
        variant->b_load = b_load;
    }
}

tsr__matmul_variant tsr__matmul_variant_for(const tsr__matmul_config *config,
                                            const tsr__matmul_device *device,
                                            const tsr__matmul_problem *p, bool vectors)
{
    tsr__matmul_variant variant = {.a_dtype = p->a.dtype, .b_dtype = p->b.dtype};

    if (config->kind == TSR__MATMUL_VECTOR_K || config->kind == TSR__MATMUL_VECTOR_COL)
        variant.rows = rows_at_least(p->m);
    if (vectors)
        choose_loads(config, p, &variant);
    if (config->kind == TSR__MATMUL_COOPMAT) {
        variant.fragment = tsr__matmul_fragment_for(config, device, p->a.dtype);
        /* Elements one at a time lie in shared memory as their neighbours do in memory. */
        if (variant.a_load == TSR_MM_LOAD_SCALAR && lanes_along_line(p->a.row, p->a.col))
            variant.a_load = TSR_MM_LOAD_SCALAR_LINE;
        if (variant.b_load == TSR_MM_LOAD_SCALAR && lanes_along_line(p->b.col, p->b.row))
            variant.b_load = TSR_MM_LOAD_SCALAR_LINE;
    }
    return variant;
}

static bool has_vectors(const tsr__matmul_config *config, const tsr__matmul_problem *p)
{
    tsr__matmul_variant variant = {0};

    choose_loads(config, p, &variant);
    return variant.a_load != TSR_MM_LOAD_SCALAR || variant.b_load != TSR_MM_LOAD_SCALAR;
}

static int64_t min_size(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

bool tsr__matmul_config_fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                             const tsr__matmul_problem *p)
{
    int64_t m = min_size(config->bm, p->m);
    int64_t n = min_size(config->bn, p->n);
    int64_t k = min_size(config->bk, p->k);
    bool y_fits = side_narrow(&p->y, m, n) && side_narrow(&p->bias, m, n);

    if (!tsr__matmul_config_runs(config, device) || (config->vectors && !has_vectors(config, p)))
        return false;
    switch (config->kind) {
    case TSR__MATMUL_LAVAPIPE:
        return tsr__lavapipe_fits(p);
    case TSR__MATMUL_COOPMAT:
        if (p->a.dtype != p->b.dtype || tsr__matmul_fragment_for(config, device, p->a.dtype).m == 0)
            return false;
        return y_fits && side_narrow(&p->a, m, k) && side_narrow(&p->b, k, n);
    case TSR__MATMUL_TILED:
        return y_fits && side_narrow(&p->a, m, k) && side_narrow(&p->b, k, n);
    case TSR__MATMUL_VECTOR_K: /* k is walked in 32 bits, where tiles step in 64 */
    case TSR__MATMUL_VECTOR_COL:
        return p->m <= config->bm && y_fits && side_narrow(&p->a, m, p->k) &&
               side_narrow(&p->b, p->k, n);
    case TSR__MATMUL_SWIFTSHADER: /* likewise, from a 64-bit address for each line */
        return y_fits && side_narrow(&p->a, 1, p->k) && side_narrow(&p->b, p->k, 1);
    case TSR__MATMUL_WIDE:
        return true;
    }
    return false;
}

int tsr__matmul_pipeline(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                         tsr__shader *shader, uint32_t spec[])
{
    int count = 0;

    switch (config->kind) {
    case TSR__MATMUL_TILED:
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
        return count;
    case TSR__MATMUL_VECTOR_K:
    case TSR__MATMUL_VECTOR_COL:
        *shader = config->kind == TSR__MATMUL_VECTOR_K ? TSR__SHADER_MATMUL_VECTOR_K
                                                       : TSR__SHADER_MATMUL_VECTOR_COL;
        spec[count++] = config->threads;
        spec[count++] = variant->rows;
        spec[count++] = config->kind == TSR__MATMUL_VECTOR_K ? config->bn : config->bn / config->tn;
        spec[count++] = variant->a_dtype;
        spec[count++] = variant->b_dtype;
        spec[count++] = variant->b_load;
        return count;
    case TSR__MATMUL_SWIFTSHADER:
        *shader =
            config->tm == 4 ? TSR__SHADER_MATMUL_SWIFTSHADER4 : TSR__SHADER_MATMUL_SWIFTSHADER8;
        spec[count++] = variant->a_dtype;
        spec[count++] = variant->b_dtype;
        spec[count++] = variant->a_load;
        spec[count++] = variant->b_load;
        return count;
    case TSR__MATMUL_COOPMAT:
        *shader = variant->a_dtype == TSR_BF16 ? TSR__SHADER_MATMUL_COOPMAT_BF16
                                               : TSR__SHADER_MATMUL_COOPMAT;
        return tsr__matmul_coopmat_spec(config, variant, spec);
    case TSR__MATMUL_LAVAPIPE: /* several, see lavapipe_plan.h */
    case TSR__MATMUL_WIDE:
        break;
    }
    *shader = TSR__SHADER_MATMUL_WIDE;
    spec[count++] = config->threads;
    spec[count++] = variant->a_dtype;
    spec[count++] = variant->b_dtype;
    return count;
}

/* Whether a variant of these loads is ever chosen. */
static bool has_loads(const tsr__matmul_config *config, uint32_t a, uint32_t b)
{
    if (config->kind == TSR__MATMUL_COOPMAT)
        return true;
    if (a >= TSR_MM_LOADS || b >= TSR_MM_LOADS)
        return false;
    switch (config->kind) {
    case TSR__MATMUL_TILED:
        return !config->vectors || a != TSR_MM_LOAD_SCALAR || b != TSR_MM_LOAD_SCALAR;
    case TSR__MATMUL_VECTOR_K:
        return a == b && a != TSR_MM_LOAD_VEC_LINE;
    case TSR__MATMUL_VECTOR_COL:
        return a == TSR_MM_LOAD_SCALAR && b != TSR_MM_LOAD_VEC_K;
    case TSR__MATMUL_SWIFTSHADER:
        return a != TSR_MM_LOAD_VEC_LINE;
    default:
        return a == TSR_MM_LOAD_SCALAR && b == TSR_MM_LOAD_SCALAR;
    }
}

void tsr__matmul_each_variant(const tsr__matmul_config *config, const tsr__matmul_device *device,
                              tsr__matmul_visit_fn visit, void *user)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    bool few_rows = config->kind == TSR__MATMUL_VECTOR_K || config->kind == TSR__MATMUL_VECTOR_COL;

    for (int pair = 0; pair < 9; pair++) {
        tsr_dtype a = dtypes[pair / 3], b = dtypes[pair % 3];
        tsr__matmul_fragment fragment = {0};
        if (config->kind == TSR__MATMUL_COOPMAT) {
            fragment = tsr__matmul_fragment_for(config, device, a);
            if (a != b || fragment.m == 0)
                continue;
        }
        for (uint32_t loads = 0; loads < TSR_MM_COOPMAT_LOADS * TSR_MM_COOPMAT_LOADS; loads++)
            for (uint32_t rows = 1; rows <= (few_rows ? 8 : 1); rows *= 2) {
                tsr__matmul_variant variant = {.a_dtype = a,
                                               .b_dtype = b,
                                               .a_load = loads / TSR_MM_COOPMAT_LOADS,
                                               .b_load = loads % TSR_MM_COOPMAT_LOADS,
                                               .rows = few_rows ? rows : 0,
                                               .fragment = fragment};
                if (has_loads(config, variant.a_load, variant.b_load))
                    visit(user, config, &variant);
            }
    }
}
