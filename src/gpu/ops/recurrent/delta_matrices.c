/* The state from chunk to chunk by cooperative matrices (delta_scan_coopmat.comp): whether a device
 * can, the narrowing of the rows, and the dispatch.
 *
 * The products inside the chunks stay as they are: they read and write so much for each
 * multiplication that narrowing their operands would take as long as it saves. */
#include "base/checked.h"
#include "gpu/device/coopmat.h"
#include "gpu/device/device.h"
#include "gpu/device/vendors.h"
#include "gpu/internal.h"
#include "gpu/matmul/narrowed.h"
#include "gpu/matmul/self_test.h"
#include "gpu/ops/recurrent/delta.h"
#include "gpu/pipeline/pipeline.h"
#include "gpu/self_test/self_test.h"
#include "shaders/params/delta.h"
#include "shaders/params/matmul.h"

enum { CHUNK = TSR_DELTA_CHUNK, SUBGROUPS = 4, MOST_COLUMNS = 32, LEAST_COLUMNS = 8 };

/* The arrays whose rows are narrowed, in the order of tsr__delta_matrices.narrowed. */
enum { QUERIES, KEYS, WEIGHTS, W };
static const tsr__delta_array arrays[TSR__DELTA_NARROWED] = {TSR__DELTA_QUERIES, TSR__DELTA_KEYS,
                                                             TSR__DELTA_WEIGHTS, TSR__DELTA_W};

/* The bytes of shared memory that the shader declares. */
static uint64_t shared_bytes(const tsr__delta_matrices *m, uint64_t key_dim)
{
    const uint64_t chunk = CHUNK, pad = TSR_MM_COOPMAT_PAD, states = key_dim + pad,
                   changes = 2 * (chunk + pad),
                   tile =
                       UINT64_C(2) * m->terms * m->columns * (states > changes ? states : changes);
    return tile + (chunk + (key_dim > chunk ? key_dim : chunk)) * 4 * (m->columns + 4) + 12;
}

/* Chooses the columns of a workgroup: as many as have room, but so few that all processors have
 * two workgroups. Each workgroup reads all rows. Returns false if no number of columns is
 * possible. */
static bool choose_columns(const tsr_device *device, const tsr__delta *call, tsr__delta_matrices *m)
{
    const uint64_t processors = device->info.processor_count ? device->info.processor_count : 32,
                   heads = (uint64_t)(call->tokens.batch * call->heads),
                   value_dim = (uint64_t)call->value_dim;
    uint32_t chosen = 0;
    /* Drivers for the CPU, on which only tests run this kernel, compile each fragment to hundreds
     * of instructions. */
    const bool cpu = device->info.type == TSR_DEVICE_CPU;
    for (uint32_t columns = MOST_COLUMNS; columns >= LEAST_COLUMNS; columns /= 2) {
        m->columns = columns;
        if (columns % m->shape->n != 0 || m->threads % (columns / 4) != 0 ||
            shared_bytes(m, (uint64_t)call->key_dim) > device->info.max_shared_memory_bytes)
            continue;
        chosen = columns;
        if (!cpu && tsr__div_up_u64(value_dim, columns) * heads >= 2 * processors)
            break;
    }
    m->columns = chosen;
    return chosen > 0;
}

static bool works(tsr_device *device)
{
    const uint32_t spec[TSR__DELTA_SPEC] = {0};
    return tsr__shader_admitted(device, TSR__SHADER_DELTA_SCAN_COOPMAT, spec, TSR__DELTA_SPEC) &&
           tsr__kernel_works(device, tsr__matmul_narrow_name, TSR_F16, tsr__matmul_test_narrow);
}

void tsr__delta_choose_matrices(const tsr__delta *call, tsr__delta_matrices *out)
{
    tsr_device *device = tsr_stream_device(call->tokens.stream);
    const tsr_precision precision = call->params.precision;
    tsr__delta_matrices m = {.shape = tsr__coopmat_used(device, TSR_F16),
                             .terms = precision == TSR_PRECISION_MEDIUM ? 1 : 2,
                             .threads = SUBGROUPS * device->info.coopmat_subgroup_size};
    *out = (tsr__delta_matrices){0};
    if (precision < TSR_PRECISION_HIGH || device->traits.not_a_chip || !m.shape)
        return;
    /* Intel's compiler spills hundreds of registers of this kernel. */
    if (device->info.vendor_id == TSR__VENDOR_INTEL)
        return;
    const uint32_t key_dim = (uint32_t)call->key_dim, rows = m.shape->m, depth = m.shape->k;
    const bool whole = rows % 8 == 0 && depth % 8 == 0 && CHUNK % rows == 0 && CHUNK % depth == 0 &&
                       key_dim % rows == 0 && key_dim % depth == 0;
    if (whole && m.threads <= device->info.max_workgroup_invocations &&
        device->max_workgroup_subgroups >= SUBGROUPS && choose_columns(device, call, &m) &&
        works(device))
        *out = m;
}

static int64_t lines_of(const tsr__delta_chunks *c, int which)
{
    const tsr_layout *l = &c->array[arrays[which]]->layout;
    return l->shape[0] * l->shape[1] * l->shape[2] * l->shape[3];
}

static int64_t width_of(const tsr__delta_chunks *c, int which)
{
    return c->array[arrays[which]]->layout.shape[4];
}

tsr_status tsr__delta_matrices_create(tsr__delta_chunks *c)
{
    for (int i = 0; i < TSR__DELTA_NARROWED; i++) {
        const int64_t elements = tsr__matmul_line_elements(width_of(c, i), c->matrices.terms);
        TSR__TRY(tsr__stream_keep_scratch(c->call->tokens.stream,
                                          (uint64_t)(2 * elements * lines_of(c, i)),
                                          &c->matrices.narrowed[i]));
    }
    return TSR_OK;
}

void tsr__delta_matrices_finish(tsr__delta_chunks *c)
{
    for (int i = 0; i < TSR__DELTA_NARROWED; i++)
        tsr__stream_return_scratch(c->call->tokens.stream, c->matrices.narrowed[i]);
}

static tsr_status narrow(const tsr__delta_chunks *c, int which)
{
    const tsr_tensor *rows = c->array[arrays[which]];
    return tsr__matmul_narrow_lines(c->call->tokens.stream,
                                    &(tsr__narrow_lines){.from = rows,
                                                         .offset = rows->layout.offset,
                                                         .line_stride = width_of(c, which),
                                                         .k_stride = 1,
                                                         .lines = lines_of(c, which),
                                                         .k = width_of(c, which),
                                                         .dtype = TSR_F16,
                                                         .terms = c->matrices.terms,
                                                         .to = c->matrices.narrowed[which]});
}

tsr_status tsr__delta_narrow(const tsr__delta_chunks *c)
{
    for (int i = 0; i < TSR__DELTA_NARROWED; i++)
        TSR__TRY(narrow(c, i));
    return TSR_OK;
}

static tsr__dispatch dispatch_for(const tsr__delta_chunks *c, tsr_dtype y,
                                  const tsr__delta_part *part)
{
    const tsr__delta *call = c->call;
    const tsr__delta_matrices *m = &c->matrices;
    const uint64_t blocks = tsr__div_up_u64((uint64_t)call->value_dim, m->columns);
    tsr__dispatch d = tsr__delta_dispatch(call, TSR__SHADER_DELTA_SCAN_COOPMAT, m->threads);
    d.spec[d.spec_count++] = m->threads / SUBGROUPS;
    d.spec[d.spec_count++] = m->columns;
    d.spec[d.spec_count++] = (uint32_t)y;
    d.spec[d.spec_count++] = part->slots;
    d.spec[d.spec_count++] = m->shape->m;
    d.spec[d.spec_count++] = m->shape->n;
    d.spec[d.spec_count++] = m->shape->k;
    d.spec[d.spec_count++] = m->terms;
    d.work = d.multiply_adds = tsr__delta_scan_work(c, part->end - part->first);
    tsr__groups_for((uint64_t)(call->tokens.batch * call->heads) * blocks, 1, d.groups);
    return d;
}

tsr_status tsr__delta_scan_matrices(const tsr__delta_chunks *c, const tsr_tensor *y,
                                    uint32_t y_stride, const tsr__delta_part *part)
{
    const tsr__delta *call = c->call;
    tsr__buffer *const *narrowed = c->matrices.narrowed;
    const struct tsr_delta_scan_matrices_push push = {
        .work = tsr__tokens_address(c->work),
        .y = tsr__tokens_address(y),
        .state = tsr__tokens_address(part->from),
        .new_state = tsr__tokens_address(part->to),
        .read_slots = tsr__tokens_address(call->tokens.read_slots),
        .write_slots = tsr__tokens_address(call->tokens.write_slots),
        .queries = narrowed[QUERIES]->address,
        .keys = narrowed[KEYS]->address,
        .weights = narrowed[WEIGHTS]->address,
        .w = narrowed[W]->address,
        .batch = (uint32_t)call->tokens.batch,
        .tokens = (uint32_t)call->tokens.tokens,
        .chunks = (uint32_t)c->chunks,
        .first_chunk = (uint32_t)part->first,
        .end_chunk = (uint32_t)part->end,
        .slots = (uint32_t)call->tokens.slots,
        .y_stride = y_stride,
        .decay = c->place[TSR__DELTA_DECAY],
        .u = c->place[TSR__DELTA_U],
    };
    tsr__dispatch d = dispatch_for(c, y ? y->layout.dtype : TSR_F32, part);
    d.push = &push;
    d.push_bytes = sizeof push;
    tsr__delta_read(c, &d, TSR__DELTA_DECAY);
    tsr__delta_read(c, &d, TSR__DELTA_U);
    for (int i = 0; i < TSR__DELTA_NARROWED; i++)
        d.access[d.access_count++] = tsr__read_buffer(narrowed[i]);
    tsr__tokens_read(&d, part->from);
    tsr__tokens_read(&d, call->tokens.read_slots);
    tsr__tokens_read(&d, call->tokens.write_slots);
    tsr__tokens_write(&d, y);
    tsr__tokens_write(&d, part->to);
    return tsr__stream_dispatch(call->tokens.stream, &d);
}
