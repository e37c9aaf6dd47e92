/* The gated delta rule in chunks: scratch memory, rows of chunks, and dispatches from chunk to
 * chunk.
 */
#include "base/checked.h"
#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "gpu/ops/common/rows.h"
#include "gpu/ops/recurrent/delta.h"
#include "shaders/params/delta.h"
#include "shaders/params/slots.h"
#include "tensor/check.h"

enum { CHUNK = TSR_DELTA_CHUNK, SCAN_WORKGROUP = 64, ROWS_WORKGROUP = 64, ROW_THREADS = 8 };

/* With products, the forward pass keeps the states before so many chunks at a time: enough matrices
 * for the products that compute y, and memory that does not grow with the prompt (1 MiB for each
 * head of a row with 128 features). */
enum { KEPT_STATES = 16 };

/* Memory ------------------------------------------------------------------------------------- */

/* The heads, rows and columns of an array. */
typedef struct shape_of_array {
    bool key_heads;
    int64_t rows, columns;
} shape_of_array;

static shape_of_array shape_of(const tsr__delta_chunks *c, tsr__delta_array array)
{
    const int64_t key = c->call->key_dim, value = c->call->value_dim;
    switch (array) {
    case TSR__DELTA_DECAY:
        return (shape_of_array){false, CHUNK, TSR_DELTA_DECAY_FLOATS};
    case TSR__DELTA_QUERIES:
    case TSR__DELTA_KEYS:
        return (shape_of_array){true, CHUNK, key};
    case TSR__DELTA_Q_INVERSE:
    case TSR__DELTA_K_INVERSE:
        return (shape_of_array){true, CHUNK, 1};
    case TSR__DELTA_KEY_KEY:
    case TSR__DELTA_QUERY_KEY:
        return (shape_of_array){true, CHUNK, CHUNK};
    case TSR__DELTA_VALUES:
    case TSR__DELTA_U:
    case TSR__DELTA_DELTAS:
    case TSR__DELTA_DDELTAS:
    case TSR__DELTA_DY:
    case TSR__DELTA_DR:
        return (shape_of_array){false, CHUNK, value};
    case TSR__DELTA_STATES:
    case TSR__DELTA_DSTATES:
        return (shape_of_array){false, key, value};
    case TSR__DELTA_DOTS:
        return (shape_of_array){false, 1, c->blocks};
    case TSR__DELTA_PARTS:
        return (shape_of_array){false, CHUNK, 2};
    case TSR__DELTA_W:
    case TSR__DELTA_X:
    case TSR__DELTA_Z:
    case TSR__DELTA_M:
    case TSR__DELTA_DQUERIES:
    case TSR__DELTA_DKEYS:
        return (shape_of_array){false, CHUNK, key};
    case TSR__DELTA_INVERSE:
    case TSR__DELTA_CARRIED:
    case TSR__DELTA_WEIGHTS:
    case TSR__DELTA_DWEIGHTS:
    case TSR__DELTA_DTRIANGLE:
    case TSR__DELTA_DQUERY_KEY:
    case TSR__DELTA_DKEY_KEY:
    case TSR__DELTA_ARRAYS:
        break;
    }
    return (shape_of_array){false, CHUNK, CHUNK};
}

static tsr_layout layout_of(const tsr__delta_chunks *c, tsr__delta_array array)
{
    const tsr__delta *call = c->call;
    const shape_of_array s = shape_of(c, array);
    const int64_t shared = s.key_heads ? 1 : call->heads / call->key_heads;
    tsr_layout layout = {.dtype = TSR_F32, .ndim = 5};
    const bool tiled = call->params.tiled_heads;
    const int64_t chunks = array == TSR__DELTA_STATES && c->products ? c->kept_states : c->chunks;
    const int64_t shape[5] = {call->tokens.batch * chunks, tiled ? shared : call->key_heads,
                              tiled ? call->key_heads : shared, s.rows, s.columns};
    int64_t stride = 1;
    for (int d = 4; d >= 0; d--) {
        layout.shape[d] = shape[d];
        layout.strides[d] = stride;
        stride *= shape[d];
    }
    return layout;
}

static tsr_status create_arrays(tsr__delta_chunks *c, int count)
{
    const int64_t unit = TSR_DELTA_UNIT / sizeof(float);
    tsr_layout layout[TSR__DELTA_ARRAYS];
    int64_t units = 0;
    for (int i = 0; i < count; i++) {
        layout[i] = layout_of(c, (tsr__delta_array)i);
        layout[i].offset = units * unit;
        c->place[i] = (uint32_t)units;
        units += (tsr_layout_count(&layout[i]) + unit - 1) / unit;
        TSR__REQUIRE(units <= UINT32_MAX,
                     "%s: %lld rows of %lld tokens need more than 1 TiB of scratch memory",
                     c->call->tokens.op, (long long)c->call->tokens.batch,
                     (long long)c->call->tokens.tokens);
    }
    const int64_t floats = units * unit;
    TSR__TRY(tsr_tensor_create(tsr_stream_device(c->call->tokens.stream), TSR_F32, 1, &floats,
                               &c->work));
    for (int i = 0; i < count; i++)
        TSR__TRY(tsr_tensor_view(c->work, &layout[i], &c->array[i]));
    return TSR_OK;
}

bool tsr__delta_by_products(const tsr__delta *call)
{
    return tsr_stream_device(call->tokens.stream)->traits.slow_barriers && call->tokens.tokens > 0;
}

tsr_status tsr__delta_chunks_create(const tsr__delta *call, bool backward, tsr__delta_chunks *out)
{
    /* The shared memory of delta_scan_grad.comp, with four quads. */
    const uint64_t shared = UINT64_C(64) * ((uint64_t)call->key_dim + UINT64_C(2) * CHUNK) +
                            UINT64_C(4) * SCAN_WORKGROUP;
    const tsr_device *device = tsr_stream_device(call->tokens.stream);
    *out = (tsr__delta_chunks){.call = call, .backward = backward};
    out->chunks = (call->tokens.tokens + CHUNK - 1) / CHUNK;
    out->quads = shared <= device->info.max_shared_memory_bytes ? 4 : 2;
    const int64_t columns = INT64_C(4) * out->quads;
    out->products = tsr__delta_by_products(call);
    out->blocks = out->products ? 1 : (call->value_dim + columns - 1) / columns;
    out->kept_states = backward || out->chunks < KEPT_STATES ? out->chunks : KEPT_STATES;
    if (!backward)
        tsr__delta_choose_matrices(call, &out->matrices);
    out->part_chunks = tsr__steps_within_work(device, tsr__delta_scan_work(out, 1));
    tsr_status status = create_arrays(out, backward        ? TSR__DELTA_ARRAYS
                                           : out->products ? TSR__DELTA_STATES + 1
                                                           : TSR__DELTA_FORWARD_ARRAYS);
    if (status == TSR_OK && !out->products && out->part_chunks < out->chunks)
        status = tsr_tensor_create(
            tsr_stream_device(call->tokens.stream), TSR_F32, 4,
            (int64_t[]){call->tokens.batch, call->heads, call->key_dim, call->value_dim},
            &out->carry);
    if (status == TSR_OK && out->matrices.terms > 0)
        status = tsr__delta_matrices_create(out);
    if (status != TSR_OK)
        tsr__delta_chunks_finish(out);
    return status;
}

void tsr__delta_chunks_finish(tsr__delta_chunks *c)
{
    tsr__delta_matrices_finish(c);
    for (int i = 0; i < TSR__DELTA_ARRAYS; i++)
        tsr_tensor_destroy(&c->array[i]);
    tsr_tensor_destroy(&c->carry);
    tsr_tensor_destroy(&c->work);
}

tsr_status tsr__delta_product(const tsr__delta_chunks *c, tsr__delta_array out, tsr__delta_array a,
                              bool transpose_a, tsr__delta_array b, bool transpose_b,
                              bool accumulate)
{
    return tsr_matmul(c->call->tokens.stream, c->array[out], c->array[a], c->array[b],
                      tsr_matmul_params(.transpose_a = transpose_a, .transpose_b = transpose_b,
                                        .accumulate = accumulate));
}

/* Rows --------------------------------------------------------------------------------------- */

/* How rows are copied into chunks: of key heads or value heads; normalised; multiplied by beta. */
typedef struct row_copy {
    bool value_heads, normalise, beta;
    float factor;
} row_copy;

/* `inverse` is used only by rows that are normalised. */
static tsr_status copy_rows(const tsr__delta_chunks *c, const tsr_tensor *x, uint32_t stride,
                            tsr__delta_array rows, tsr__delta_array inverse, row_copy how)
{
    const tsr__delta *call = c->call;
    const struct tsr_delta_rows_push push = {
        .x = tsr__tokens_address(x),
        .lengths = tsr__tokens_address(call->params.lengths),
        .work = tsr__tokens_address(c->work),
        .batch = (uint32_t)call->tokens.batch,
        .tokens = (uint32_t)call->tokens.tokens,
        .chunks = (uint32_t)c->chunks,
        .stride = stride,
        .rows = c->place[rows],
        .inverse = c->place[inverse],
        .decay = c->place[TSR__DELTA_DECAY],
        .factor = how.factor,
        .epsilon = call->params.norm_epsilon,
    };
    tsr__dispatch d = tsr__delta_dispatch(call, TSR__SHADER_DELTA_ROWS, ROWS_WORKGROUP);
    if (how.value_heads && !how.beta) { /* the kernel copies them as rows of key heads */
        d.spec[2] = d.spec[1];
        d.spec[3] = d.spec[4];
    }
    d.spec[d.spec_count++] = (uint32_t)x->layout.dtype;
    d.spec[d.spec_count++] = how.normalise;
    d.spec[d.spec_count++] = how.beta;
    d.push = &push;
    d.push_bytes = sizeof push;
    const int64_t heads = how.value_heads ? call->heads : call->key_heads;
    tsr__groups_for((uint64_t)(call->tokens.batch * c->chunks * heads * CHUNK),
                    ROWS_WORKGROUP / ROW_THREADS, d.groups);
    tsr__tokens_read(&d, x);
    tsr__tokens_read(&d, call->params.lengths);
    if (how.beta)
        tsr__delta_read(c, &d, TSR__DELTA_DECAY);
    tsr__delta_write(c, &d, rows);
    if (how.normalise)
        tsr__delta_write(c, &d, inverse);
    return tsr__stream_dispatch(call->tokens.stream, &d);
}

tsr_status tsr__delta_value_rows(const tsr__delta_chunks *c, const tsr_tensor *x, uint32_t stride,
                                 tsr__delta_array rows)
{
    return copy_rows(c, x, stride, rows, rows, (row_copy){.value_heads = true, .factor = 1});
}

tsr_status tsr__delta_rows(const tsr__delta_chunks *c)
{
    const tsr__delta *call = c->call;
    row_copy how = {.normalise = call->params.norm_epsilon > 0, .factor = call->scale};
    TSR__TRY(copy_rows(c, call->q, call->q_stride, TSR__DELTA_QUERIES, TSR__DELTA_Q_INVERSE, how));
    how.factor = 1;
    TSR__TRY(copy_rows(c, call->k, call->k_stride, TSR__DELTA_KEYS, TSR__DELTA_K_INVERSE, how));
    return copy_rows(c, call->v, call->v_stride, TSR__DELTA_VALUES, TSR__DELTA_VALUES,
                     (row_copy){.value_heads = true, .beta = true, .factor = 1});
}

/* From chunk to chunk ------------------------------------------------------------------------ */

tsr__dispatch tsr__delta_scan_dispatch(const tsr__delta_chunks *c, tsr__shader shader,
                                       tsr_dtype dtype, int64_t chunks)
{
    const tsr__delta *call = c->call;
    tsr__dispatch d = tsr__delta_dispatch(call, shader, SCAN_WORKGROUP);
    d.spec[d.spec_count++] = SCAN_WORKGROUP;
    d.spec[d.spec_count++] = c->quads;
    d.spec[d.spec_count++] = (uint32_t)dtype;
    d.work = d.multiply_adds = tsr__delta_scan_work(c, chunks);
    tsr__groups_for((uint64_t)(call->tokens.batch * call->heads * c->blocks), 1, d.groups);
    return d;
}

tsr__delta_part tsr__delta_part_at(const tsr__delta_chunks *c, int64_t first,
                                   const tsr_tensor *new_state)
{
    const tsr__tokens *t = &c->call->tokens;
    const bool begins = first == 0, ends = first + c->part_chunks >= c->chunks;
    const uint32_t slots = (begins ? TSR_SLOTS_READ : 0) | (ends ? TSR_SLOTS_WRITE : 0);
    return (tsr__delta_part){.first = first,
                             .end = ends ? c->chunks : first + c->part_chunks,
                             .from = begins ? c->call->params.state : c->carry,
                             .to = ends ? new_state : c->carry,
                             .slots = tsr__tokens_slots(t) & slots};
}

/* The scan of no chunks copies states. */
tsr_status tsr__delta_store_state(const tsr__delta_chunks *c, const tsr_tensor *states,
                                  const tsr_tensor *new_state)
{
    const tsr__tokens *t = &c->call->tokens;
    const struct tsr_delta_scan_push push = {
        .work = tsr__tokens_address(c->work),
        .state = tsr__tokens_address(states),
        .new_state = tsr__tokens_address(new_state),
        .write_slots = tsr__tokens_address(t->write_slots),
        .slots = (uint32_t)t->slots,
        .batch = (uint32_t)t->batch,
        .states = TSR_DELTA_NOT_KEPT,
        .deltas = TSR_DELTA_NOT_KEPT,
    };
    const uint64_t heads = (uint64_t)(t->batch * c->call->heads);
    tsr__dispatch d = tsr__delta_scan_dispatch(c, TSR__SHADER_DELTA_SCAN, TSR_F32, 0);
    d.spec[d.spec_count++] = TSR_SLOTS_WRITE;
    /* c->blocks is 1 with products, but this kernel has its usual blocks. */
    tsr__groups_for(heads * tsr__div_up_u64((uint64_t)c->call->value_dim, UINT64_C(4) * c->quads),
                    1, d.groups);
    d.push = &push;
    d.push_bytes = sizeof push;
    tsr__tokens_read(&d, states);
    tsr__tokens_read(&d, t->write_slots);
    tsr__tokens_write(&d, new_state);
    return tsr__stream_dispatch(t->stream, &d);
}
