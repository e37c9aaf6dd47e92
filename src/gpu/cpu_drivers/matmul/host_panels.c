#include "gpu/cpu_drivers/matmul/host_panels.h"

#include "gpu/cpu_drivers/matmul/panels.h"
#include "gpu/memory/slabs.h"

bool tsr__lavapipe_reads_words(const tsr__matmul_problem *problem)
{
    return problem->a.dtype == TSR_BF16 && problem->b.dtype == TSR_BF16;
}

tsr__lavapipe_product tsr__lavapipe_panels_product(const tsr__matmul_call *call)
{
    const tsr__matmul_problem *p = call->problem;
    const tsr_device *device = tsr_stream_device(call->stream);

    tsr__lavapipe_product product = {
        .form = TSR__LAVAPIPE_NT,
        .m = (uint32_t)p->m,
        .n = (uint32_t)p->n,
        .k = (uint32_t)p->k,
        .lanes = device->info.subgroup_size,
        .alone = p->batch_dims == 0,
        .long_code = device->long_code,
        .panels = true,
    };
    product.method = tsr__lavapipe_resolve(&product);
    return product;
}

bool tsr__lavapipe_host_may_pack(const tsr__matmul_call *call)
{
    const tsr_device *device = tsr_stream_device(call->stream);

    return device->host_copies && tsr__memory_is_mapped(device) && call->a->buffer->host &&
           call->b->buffer->host && tsr__buffer_idle(call->a->buffer) &&
           tsr__buffer_idle(call->b->buffer);
}

/* Reserves scratch memory for the panels of one operand. Matrices that are repeated along a batch
 * dimension are packed once. */
static tsr_status reserve(const tsr__matmul_call *call, tsr__matmul_side *side, int64_t lines,
                          tsr_tensor *panels)
{
    const tsr__matmul_problem *p = call->problem;
    const tsr__lavapipe_product product = tsr__lavapipe_panels_product(call);
    int64_t elements = (int64_t)tsr__lavapipe_panels_size(&product, (uint32_t)lines);

    for (int i = p->batch_dims - 1; i >= 0; i--)
        if (side->batch[i] > 0) {
            side->batch[i] = elements;
            elements *= p->batch[i];
        }
    side->dtype = TSR_F32;
    side->offset = 0;
    panels->layout = (tsr_layout){.dtype = TSR_F32, .ndim = 1, .shape = {elements}, .strides = {1}};
    return tsr__stream_idle_scratch(call->stream, (uint64_t)elements * sizeof(float),
                                    &panels->buffer);
}

static tsr_status reserve_both(const tsr__matmul_call *call, tsr__matmul_problem *packed,
                               tsr_tensor *a, tsr_tensor *b)
{
    TSR__TRY(reserve(call, &packed->a, packed->m, a));
    return a->buffer ? reserve(call, &packed->b, packed->n, b) : TSR_OK;
}

tsr_status tsr__lavapipe_reserve_panels(const tsr__matmul_call *call, tsr__matmul_problem *packed,
                                        tsr_tensor *a, tsr_tensor *b, bool *reserved)
{
    tsr_status status = reserve_both(call, packed, a, b);

    *reserved = status == TSR_OK && a->buffer && b->buffer;
    packed->a.row = packed->b.col = 0; /* lines in panels have no strides of their own */
    packed->a.col = packed->b.row = 1;
    return status == TSR_ERR_DEVICE_MEMORY ? TSR_OK : status;
}

/* Packs all distinct matrices of an operand. `side` describes the operand in `from`, and `packed`
 * describes its panels in `to`. `lines` has the strides of `side`. */
static void fill(const tsr__matmul_call *call, const tsr_tensor *from, const tsr__matmul_side *side,
                 tsr__lavapipe_lines lines, const tsr_tensor *to, const tsr__matmul_side *packed)
{
    const tsr__lavapipe_product product = tsr__lavapipe_panels_product(call);
    tsr__matmul_problem distinct = *call->problem;
    int64_t index[TSR__MATMUL_BATCH] = {0};

    for (int i = 0; i < distinct.batch_dims; i++)
        if (side->batch[i] == 0)
            distinct.batch[i] = 1;
    lines.dtype = side->dtype;
    lines.words = tsr_stream_device(call->stream)->storage == TSR__STORAGE_S16 &&
                  tsr__lavapipe_reads_words(call->problem);
    do {
        const int64_t start =
            side->offset + tsr__matmul_batch_offset(side, distinct.batch_dims, index);
        lines.from =
            (const char *)from->buffer->host + start * (int64_t)tsr_dtype_size(side->dtype);
        tsr__lavapipe_panels_pack(&product, &lines,
                                  (float *)to->buffer->host +
                                      tsr__matmul_batch_offset(packed, distinct.batch_dims, index));
    } while (tsr__matmul_next_batch(&distinct, distinct.batch_dims, index));
}

void tsr__lavapipe_fill_panels(const tsr__matmul_call *call, const tsr__matmul_problem *packed,
                               const tsr_tensor *a, const tsr_tensor *b)
{
    const tsr__matmul_problem *p = call->problem;
    const tsr__lavapipe_lines rows = {.count = (uint32_t)p->m, .line = p->a.row, .k = p->a.col};
    const tsr__lavapipe_lines columns = {.count = (uint32_t)p->n, .line = p->b.col, .k = p->b.row};

    fill(call, call->a, &p->a, rows, a, &packed->a);
    fill(call, call->b, &p->b, columns, b, &packed->b);
}
