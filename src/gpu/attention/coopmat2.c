/* The backward pass of attention in f16 or bf16 by cooperative matrices that a workgroup shares
 * (attention_coopmat2.comp, attention_coopmat2_bf16.comp). */
#include <string.h>

#include "base/checked.h"
#include "gpu/attention/call.h"
#include "gpu/device/coopmat.h"
#include "gpu/device/device.h"
#include "gpu/matmul/chip_tiles.h"
#include "gpu/matmul/choose_kernel.h"

/* With fewer queries, workgroups of subgroups' own matrices have smaller tiles and fill a GPU
 * better. */
#define MIN_QUERIES 128

/* The specialization constants of the shader, in their order. */
typedef struct config {
    uint32_t threads, bx, by, kind, width, form;
} config;

/* The tiles for heads of up to `width` columns. The results of a pass for dk and dv, with their
 * operands and the scores, should fit the registers of a workgroup: here they take 176 and 160 of
 * the 255 that an invocation has on NVIDIA's GPUs. */
static const config tiles[] = {{.threads = 128, .bx = 64, .by = 64, .width = 64},
                               {.threads = 256, .bx = 64, .by = 64, .width = 128}};

/* The bytes of shared memory that the shader declares. */
static uint32_t shared_bytes(const config *f)
{
    return 16 * tsr__max_u32(f->bx, f->by);
}

/* Chooses the sizes of the tiles. Returns false if the device cannot compute them. */
static bool configure(const tsr__attention_pass *p, config *out)
{
    const tsr__attention *c = p->call;
    const tsr_device *device = tsr_stream_device(c->stream);
    const tsr__coopmat2 *shared = &device->coopmat2;
    size_t i = 0;
    while (i < sizeof tiles / sizeof *tiles && c->head_dim > tiles[i].width)
        i++;
    if (i == sizeof tiles / sizeof *tiles)
        return false;
    config f = tiles[i];
    const tsr__coopmat2_units *units =
        tsr__coopmat2_units_for(shared, c->q->layout.dtype, f.threads);
    if (!units)
        return false;
    f.kind = p->kind;
    f.form = tsr__attention_scores_kind(c);
    /* the products are BX × WIDTH × BY and BX × BY × WIDTH */
    const uint32_t unit = tsr__max_u32(units->n, units->k);
    f.width = (uint32_t)tsr__align_up_u64((uint64_t)c->head_dim, unit);
    while (f.bx > shared->max_dimension)
        f.bx /= 2;
    while (f.by > shared->max_dimension)
        f.by /= 2;
    *out = f;
    return f.width <= shared->max_dimension && f.bx % units->m == 0 && f.by % unit == 0 &&
           f.width % units->n == 0 && f.width % units->k == 0 && f.bx > 0 && f.by > 0 &&
           f.threads <= device->info.max_workgroup_invocations &&
           shared_bytes(&f) + shared->reserved_shared_bytes <= device->info.max_shared_memory_bytes;
}

static void specialize(const tsr__attention_pass *p, const config *f, tsr__dispatch *dispatch)
{
    dispatch->shader = p->call->q->layout.dtype == TSR_BF16 ? TSR__SHADER_ATTENTION_COOPMAT2_BF16
                                                            : TSR__SHADER_ATTENTION_COOPMAT2;
    dispatch->spec_count = sizeof *f / sizeof *dispatch->spec;
    memcpy(dispatch->spec, f, sizeof *f);
}

/* True if the kernel can load or store x: all rows are contiguous, do not overlap and start at
 * multiples of 16 bytes, and the rows of a tile are within 2^31 bytes. */
static bool is_tensor(const tsr_tensor *x, tsr_dtype dtype)
{
    const int64_t most = INT32_MAX / 2 / 64;
    const tsr_layout *l = &x->layout;
    return l->dtype == dtype && tsr__attention_eights(x) && l->strides[2] >= l->shape[3] &&
           l->strides[2] % 8 == 0 && l->strides[2] <= most;
}

static bool operands_suit(const tsr__attention_pass *p)
{
    const tsr__attention *c = p->call;
    const tsr_tensor *operands[] = {c->q, c->k, c->v, c->dy, p->out, p->also};
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        if (operands[i] && !is_tensor(operands[i], c->q->layout.dtype))
            return false;
    return c->value_dim == c->head_dim;
}

static bool chip_shares_matrices(const tsr_device *device)
{
    const tsr__matmul_device properties = tsr__matmul_device_of(device);
    return tsr__chip_of(&properties)->shares_matrices;
}

bool tsr__attention_coopmat2_suits(const tsr__attention_pass *p)
{
    const tsr__attention *c = p->call;
    tsr_device *device = tsr_stream_device(c->stream);
    config f;
    if (p->kind == TSR_ATTENTION_FORWARD || p->kind == TSR_ATTENTION_DELTA)
        return false;
    if (device->traits.not_a_chip || device->storage != TSR__STORAGE_S16 ||
        !device->coopmat2.converts || !chip_shares_matrices(device))
        return false;
    if (c->q_len < MIN_QUERIES || c->params.mask || c->params.pages ||
        (tsr__attention_scores_kind(c) & ~TSR_ATTENTION_STARTS) != 0 || !operands_suit(p) ||
        !configure(p, &f))
        return false;
    tsr__dispatch dispatch = {0};
    specialize(p, &f, &dispatch);
    return tsr__shader_admitted(device, dispatch.shader, dispatch.spec, dispatch.spec_count);
}

tsr_status tsr__attention_coopmat2(const tsr__attention_pass *p)
{
    tsr__dispatch dispatch = {0};
    config f;
    /* this succeeds, because tsr__attention_coopmat2_suits() has returned true */
    (void)configure(p, &f);
    specialize(p, &f, &dispatch);
    return tsr__attention_pass_dispatch(p, &dispatch, f.bx);
}
