/* Attention of f16 or bf16 by cooperative matrices (attention_coopmat.comp,
 * attention_coopmat_bf16.comp). */
#include <string.h>

#include "base/checked.h"
#include "gpu/attention/call.h"
#include "gpu/device/coopmat.h"
#include "gpu/device/device.h"
#include "gpu/device/vendors.h"

enum {
    PAD = 8,             /* unused elements at the end of each row of a tile in shared memory */
    MAX_WIDTH = 128,     /* more columns need more registers than invocations have */
    MAX_BOTH_WIDTH = 64, /* the limit instead of MAX_WIDTH if one pass computes dk and dv */
    MAX_ROWS = 128,      /* rows of a workgroup */
    SHORT_ROWS = 64,
    SUBGROUP_ROWS = 16,
    /* With fewer queries, most rows of a workgroup would be idle. */
    MIN_QUERIES = 40,
};

/* The specialization constants of the shader, in their order, except for those of the operands. */
typedef struct config {
    uint32_t threads, subgroup, row_blocks, kind, by, width, fm, fn, fk, along_k;
} config;

static uint32_t rows_of(const config *f)
{
    return f->threads / f->subgroup * f->row_blocks * f->fm;
}

/* The bytes of shared memory that the shader declares. For bf16, each subgroup has memory for a
 * fragment of sums, and two members align the tiles. */
static uint32_t shared_bytes(const config *f, tsr_dtype dtype)
{
    const bool bf16 = dtype == TSR_BF16;
    const uint32_t fragments = bf16 ? f->threads / f->subgroup : 1, alignment = bf16 ? 2 * 16 : 0;
    const bool has_dp = f->kind != TSR_ATTENTION_FORWARD && f->kind != TSR_ATTENTION_DV;
    const uint32_t sums = f->kind == TSR_ATTENTION_DELTA ? 0 : f->kind == TSR_ATTENTION_DKV ? 2 : 1;
    const uint32_t tile = f->by * (f->width + PAD), transposed = f->width * (f->by + PAD);
    const uint32_t tiles =
        tile * (has_dp || !f->along_k ? 2 : 1) + (f->along_k ? sums * transposed : 0);
    const uint32_t p = rows_of(f) * (f->by + PAD);
    return 2 * (tiles + p) + 4 * (fragments * f->fm * f->fn + rows_of(f) + 2 * f->by) + alignment;
}

/* Chooses the sizes of the tiles. Returns false if the device cannot compute them. */
static bool configure(const tsr__attention_pass *p, config *out)
{
    const tsr_device *device = tsr_stream_device(p->call->stream);
    const tsr_dtype dtype = p->call->q->layout.dtype;
    const tsr_coopmat_shape *shape = tsr__coopmat_used(device, dtype);
    const uint32_t subgroup = device->info.coopmat_subgroup_size;
    if (!shape || subgroup == 0 || shape->m * shape->n % subgroup != 0)
        return false;
    if (dtype == TSR_F16 && !tsr__coopmat_sums_f16(device, shape))
        return false; /* the kernel rounds fragments as a whole */
    const uint32_t unit = tsr__max_u32(tsr__max_u32(shape->n, shape->k), 8);
    config f = {
        .subgroup = subgroup,
        .row_blocks = shape->m < SUBGROUP_ROWS ? SUBGROUP_ROWS / shape->m : 1,
        .kind = p->kind,
        .width = (uint32_t)tsr__align_up_u64((uint64_t)p->call->head_dim, unit),
        .fm = shape->m,
        .fn = shape->n,
        .fk = shape->k,
        /* AMD's GPUs need tiles that are transposed when they are stored */
        .along_k = device->info.vendor_id == TSR__VENDOR_AMD,
    };
    f.by = f.width <= 64 && f.kind != TSR_ATTENTION_DKV ? 64 : 32;
    /* Drivers for the CPU, on which only tests run these kernels, compile one multiply-add to
     * hundreds of instructions. */
    if (device->info.type == TSR_DEVICE_CPU) {
        f.by = 2 * unit;
        f.row_blocks = f.width <= 32 ? 2 : 1;
    }
    const uint64_t rows = (uint64_t)p->out->layout.shape[2];
    uint32_t subgroups = (rows <= SHORT_ROWS ? SHORT_ROWS : MAX_ROWS) / (f.row_blocks * f.fm);
    for (; subgroups > 0; subgroups /= 2) {
        f.threads = subgroups * subgroup;
        if (subgroups <= device->max_workgroup_subgroups &&
            f.threads <= device->info.max_workgroup_invocations &&
            shared_bytes(&f, dtype) <= device->info.max_shared_memory_bytes)
            break;
    }
    *out = f;
    return subgroups > 0;
}

static tsr__shader shader_for(const tsr__attention_pass *p)
{
    return p->call->q->layout.dtype == TSR_BF16 ? TSR__SHADER_ATTENTION_COOPMAT_BF16
                                                : TSR__SHADER_ATTENTION_COOPMAT;
}

bool tsr__attention_eights(const tsr_tensor *x)
{
    if (tsr__dtype_is_block(x->layout.dtype))
        return true;
    const tsr_layout *l = &x->layout;
    bool fits = l->strides[3] == 1 && l->shape[3] % 8 == 0 && tsr__tensor_address(x) % 16 == 0;
    for (int d = 0; d < 3; d++)
        fits = fits && (l->strides[d] % 8 == 0 || l->shape[d] == 1);
    return fits;
}

static void specialize(const tsr__attention_pass *p, const config *f, tsr__dispatch *dispatch)
{
    const tsr__attention *c = p->call;
    const uint32_t spec[] = {
        f->threads,
        f->subgroup,
        f->row_blocks,
        f->kind,
        f->by,
        f->width,
        f->fm,
        f->fn,
        f->fk,
        f->along_k,
        tsr__attention_eights(c->q) && tsr__attention_eights(c->k) && tsr__attention_eights(c->v) &&
            (!c->dy || tsr__attention_eights(c->dy)),
        tsr__attention_eights(p->out) && (!p->also || tsr__attention_eights(p->also)),
        c->params.mask ? (uint32_t)c->params.mask->layout.dtype : 0,
        tsr__attention_scores_kind(c),
        c->params.pages != NULL,
        tsr__dtype_is_block(c->k->layout.dtype) ? (uint32_t)c->k->layout.dtype : 0,
    };
    dispatch->shader = shader_for(p);
    dispatch->spec_count = sizeof spec / sizeof *spec;
    memcpy(dispatch->spec, spec, sizeof spec);
}

/* True if the kernel can compute with operands of these dtypes: all are those of q, except that
 * keys and values of the forward pass may be in one block format if q is f16. */
static bool dtypes_suit(const tsr__attention_pass *p)
{
    const tsr__attention *c = p->call;
    const tsr_dtype dtype = c->q->layout.dtype, cached = c->k->layout.dtype;
    const tsr_tensor *operands[] = {c->dy, p->out, p->also};
    const bool from_blocks =
        p->kind == TSR_ATTENTION_FORWARD && dtype == TSR_F16 && tsr__dtype_is_cached_block(cached);
    if (c->v->layout.dtype != cached || (cached != dtype && !from_blocks))
        return false;
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        if (operands[i] && operands[i]->layout.dtype != dtype)
            return false;
    return true;
}

bool tsr__attention_coopmat_suits(const tsr__attention_pass *p)
{
    const tsr__attention *c = p->call;
    tsr_device *device = tsr_stream_device(c->stream);
    config f;
    if (!dtypes_suit(p))
        return false;
    /* Intel's compiler spills hundreds of registers of these kernels, with any tile: Xe2 has 256 of
     * 32 bytes, and the forward pass of 64 columns uses 433 at once with 8 rows for each subgroup
     * and 16 keys, 515 with 64 keys (Mesa 26.2.6). */
    if (device->info.vendor_id == TSR__VENDOR_INTEL)
        return false;
    if (c->value_dim != c->head_dim)
        return false;
    if (device->traits.not_a_chip || !device->subgroup_votes || c->q_len < MIN_QUERIES ||
        c->head_dim > (p->also ? MAX_BOTH_WIDTH : MAX_WIDTH) || !configure(p, &f))
        return false;
    tsr__dispatch dispatch = {0};
    specialize(p, &f, &dispatch);
    return tsr__shader_admitted(device, dispatch.shader, dispatch.spec, dispatch.spec_count);
}

tsr_status tsr__attention_coopmat(const tsr__attention_pass *p)
{
    tsr__dispatch dispatch = {0};
    config f;
    /* this succeeds, because tsr__attention_coopmat_suits() has returned true */
    (void)configure(p, &f);
    specialize(p, &f, &dispatch);
    return tsr__attention_pass_dispatch(p, &dispatch, rows_of(&f));
}
