/* Grouped products with cooperative matrices (matmul_grouped_coopmat.glsl): which are possible, and
 * what is different from those of grouped.c. */
#include "gpu/experts/grouped.h"

#include <string.h>

#include "base/checked.h"
#include "gpu/device/device.h"
#include "gpu/device/vendors.h"
#include "gpu/internal.h"
#include "gpu/matmul/choose_kernel.h"
#include "gpu/matmul/kernels/configs.h"
#include "gpu/matmul/kernels/kernels.h"
#include "gpu/matmul/narrowed.h"
#include "gpu/matmul/self_test.h"
#include "gpu/quant/dequantize.h"
#include "gpu/self_test/self_test.h"
#include "shaders/params/matmul.h"

enum { THREADS = 128, COLUMNS = 64, INTEL_COLUMNS = 32, SHALLOW = 32, DEEP = 64, MOST_K = 1 << 27 };

static bool is_block(tsr_dtype dtype)
{
    return tsr_quant_format_of(dtype) != NULL;
}

/* The dtype of the matrices' elements: that of 16-bit operands, or f16 if there are none. 0: two
 * different ones, or a matrix in f32. */
static tsr_dtype element_dtype(tsr_dtype x, tsr_dtype w)
{
    if (is_block(w))
        return x == TSR_F32 ? TSR_F16 : x;
    return w != TSR_F32 && (x == TSR_F32 || x == w) ? w : (tsr_dtype)0;
}

static bool rows_aligned(const tsr__pair_rows *rows)
{
    return rows->width % 8 == 0 && rows->stride % 8 == 0 &&
           tsr__tensor_address(rows->tensor) % 16 == 0;
}

static bool weight_aligned(const tsr_tensor *w)
{
    const tsr_layout *l = &w->layout;
    return is_block(l->dtype) ||
           (l->strides[2] == 1 && l->shape[2] % 8 == 0 && l->strides[1] % 8 == 0 &&
            l->strides[0] % 8 == 0 && tsr__tensor_address(w) % 16 == 0);
}

/* Terms whose sum is as exact as f32. */
static uint32_t terms_of(tsr_dtype dtype)
{
    return dtype == TSR_F16 ? 2 : 3;
}

/* A step has whole units of blocks (the shader's SPAN), if these are at most DEEP elements apart
 * and the tiles fit shared memory. */
static uint32_t depth_for(tsr_dtype w)
{
    if (!is_block(w))
        return SHALLOW;
    uint32_t spec[TSR_QUANT_SPECS];
    tsr__quant_describe(w, spec);
    const uint32_t run = spec[0] >> 16, parts = 8 / ((spec[0] >> 8) & 255);
    return run * parts == DEEP ? DEEP : SHALLOW;
}

static uint32_t shared_bytes(const tsr__grouped_matrices *m)
{
    const uint32_t lines = m->x_terms * m->rows + m->w_terms * m->columns,
                   tiles = lines * (m->depth + TSR_MM_COOPMAT_PAD) * 2,
                   stage = m->rows * (m->columns + 4) * 4, own = (2 * m->rows + 2 * m->columns) * 4;
    if (m->dtype == TSR_BF16)
        return tiles + stage + 16 + own;
    return (tiles > stage ? tiles : stage) + own;
}

/* Chooses a tile with `rows` rows. Returns false if the device cannot run it. Intel's compiler
 * spills registers of larger tiles, and keeps all fragments of a step in registers. */
static bool choose_tile(const tsr__matmul_device *device, tsr_dtype w, uint32_t rows,
                        tsr__grouped_matrices *m)
{
    const bool intel = device->vendor_id == TSR__VENDOR_INTEL;
    m->rows = intel && is_block(w) ? 32 : rows;
    m->columns = intel ? INTEL_COLUMNS : COLUMNS;
    m->depth = intel ? SHALLOW : depth_for(w);
    if (shared_bytes(m) > tsr__matmul_shared_limit(device))
        m->depth = SHALLOW;
    const tsr__matmul_config config = {
        .name = "grouped", .threads = THREADS, .bm = m->rows, .bn = m->columns, .bk = m->depth};
    m->fragment = tsr__matmul_fragment_for(&config, device, m->dtype);
    return m->fragment.m > 0 && shared_bytes(m) <= device->max_shared_bytes;
}

static tsr__shader shader_of(tsr_dtype dtype)
{
    return dtype == TSR_BF16 ? TSR__SHADER_MATMUL_GROUPED_COOPMAT_BF16
                             : TSR__SHADER_MATMUL_GROUPED_COOPMAT;
}

/* True if the kernel has passed its self-tests, and that which narrows rows has. */
static bool works(tsr_device *device, const tsr__grouped_matrices *m, tsr_dtype w)
{
    uint32_t spec[TSR_QUANT_SPECS + TSR__GROUPED_MATRICES_BLOCKS + 1] = {0};
    tsr__quant_describe(is_block(w) ? w : TSR_Q4_0, spec);
    spec[TSR_QUANT_SPECS + TSR__GROUPED_MATRICES_BLOCKS] = is_block(w);
    return tsr__shader_admitted(device, shader_of(m->dtype), spec,
                                (int)(sizeof spec / sizeof spec[0])) &&
           (!m->x_narrowed ||
            tsr__kernel_works(device, tsr__matmul_narrow_name, m->dtype, tsr__matmul_test_narrow));
}

void tsr__grouped_choose_matrices(tsr_stream *stream, tsr__grouped *call, uint32_t rows)
{
    tsr_device *gpu = tsr_stream_device(stream);
    const tsr__matmul_device device = tsr__matmul_device_of(gpu);
    const tsr_dtype x = call->x.tensor->layout.dtype, w = call->w->layout.dtype;
    tsr__grouped_matrices m = {.dtype = element_dtype(x, w)};
    call->matrices = (tsr__grouped_matrices){0};
    if (device.traits.not_a_chip || m.dtype == 0 || call->transposed || call->experts == 0 ||
        call->k == 0 || call->k > MOST_K || !weight_aligned(call->w) ||
        (call->params->up && !weight_aligned(call->params->up)))
        return;
    m.x_narrowed = x != m.dtype;
    if (!m.x_narrowed && !rows_aligned(&call->x))
        return;
    m.x_terms = m.x_narrowed ? terms_of(m.dtype) : 1;
    m.w_terms = is_block(w) ? terms_of(m.dtype) : 1;
    if (!choose_tile(&device, w, rows, &m) && !choose_tile(&device, w, 32, &m))
        return;
    if (works(gpu, &m, w))
        call->matrices = m;
}

static uint32_t narrowed_rows(const tsr__grouped *call)
{
    return call->pairs.tokens * (call->x.per_pair ? call->pairs.chosen : 1);
}

uint64_t tsr__grouped_narrow_bytes(const tsr__grouped *call)
{
    const int64_t line = tsr__matmul_line_elements(call->k, call->matrices.x_terms);
    return call->matrices.x_narrowed ? (uint64_t)line * 2 * narrowed_rows(call) : 0;
}

tsr_status tsr__grouped_narrow(tsr_stream *stream, const tsr__grouped *call)
{
    const tsr_tensor *x = call->x.tensor;
    return tsr__matmul_narrow_lines(stream, &(tsr__narrow_lines){.from = x,
                                                                 .offset = x->layout.offset,
                                                                 .line_stride = call->x.stride,
                                                                 .k_stride = 1,
                                                                 .lines = narrowed_rows(call),
                                                                 .k = call->k,
                                                                 .dtype = call->matrices.dtype,
                                                                 .terms = call->matrices.x_terms,
                                                                 .to = call->matrices.narrowed});
}

void tsr__grouped_use_matrices(const tsr__grouped *call, const tsr_tensor *w, tsr_dtype y,
                               tsr_dtype bias, bool accumulate, bool gated,
                               struct tsr_grouped_push *push, tsr__dispatch *dispatch)
{
    const tsr__grouped_matrices *m = &call->matrices;
    const tsr__matmul_fragment *f = &m->fragment;
    const bool blocks = is_block(w->layout.dtype);
    if (m->x_narrowed) {
        push->x = m->narrowed->address;
        push->x_stride = (uint32_t)tsr__matmul_line_elements(call->k, m->x_terms);
        dispatch->access[0] = tsr__read_buffer(m->narrowed);
    }
    dispatch->shader = shader_of(m->dtype);
    tsr__quant_describe(blocks ? w->layout.dtype : TSR_Q4_0, dispatch->spec);
    const uint32_t spec[] = {
        THREADS,        f->subgroup_size,
        f->down,        m->rows,
        m->columns,     m->depth,
        f->m,           f->n,
        f->k,           m->x_terms,
        m->x_narrowed,  m->w_terms,
        blocks,         (uint32_t)y,
        (uint32_t)bias, accumulate,
        gated,          gated ? (uint32_t)call->params->activation : 0,
    };
    dispatch->spec_count = TSR_QUANT_SPECS + (int)(sizeof spec / sizeof spec[0]);
    memcpy(dispatch->spec + TSR_QUANT_SPECS, spec, sizeof spec);
}
