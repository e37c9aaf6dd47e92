/* The gated delta rule's state from chunk to chunk by batched products. With S the state before a
 * chunk, K' = −beta · carry · K, and V' = beta · v:
 *
 *     R = V' + K'·S, D = T·R                           the changes of the state
 *     y = carry · Q·S + weights·D
 *     S ← carry[last] · S + Kᵀ·(out · D)
 *
 * Only R, D and S are computed chunk by chunk, in one product each for all heads of all rows of the
 * batch; y is computed for several chunks at once. Where barriers are slow this is faster than
 * delta_scan.comp, which keeps the state in shared memory. */
#include "gpu/internal.h"
#include "gpu/memory/tensor.h"
#include "gpu/ops/recurrent/delta.h"
#include "shaders/params/delta.h"
#include "tessera/matmul.h"
#include "tessera/ops.h"

enum { CHUNK = TSR_DELTA_CHUNK };

/* Places in a row of `decay`: see delta.glsl. */
enum { CARRY = 1, OUT = 2, CARRY_LAST = 5, CARRIED = 7 };

/* Views -------------------------------------------------------------------------------------- */

/* The view [batch, count, heads…, rows, columns] of an array: `count` chunks of each row. The
 * states of the forward pass are [chunks, batch, …], so that those before one chunk are contiguous.
 */
static tsr_tensor part_of(const tsr__delta_chunks *c, tsr__delta_array array, int64_t first,
                          int64_t count)
{
    const tsr_layout *all = &c->array[array]->layout;
    const int64_t batch = c->call->tokens.batch, chunks = all->shape[0] / batch;
    tsr_layout view = {.dtype = TSR_F32, .ndim = 6, .offset = all->offset};
    const bool chunks_first = array == TSR__DELTA_STATES && !c->backward;
    view.shape[0] = batch;
    view.shape[1] = count;
    view.strides[0] = chunks_first ? all->strides[0] : chunks * all->strides[0];
    view.strides[1] = chunks_first ? batch * all->strides[0] : all->strides[0];
    view.offset += first * view.strides[1];
    for (int d = 1; d < 5; d++) {
        view.shape[d + 1] = all->shape[d];
        view.strides[d + 1] = all->strides[d];
    }
    return tsr__tensor_alias(c->array[array], &view);
}

/* The view of number `which` of each token, or of each chunk, which broadcasts to rows. */
static tsr_tensor numbers_of(const tsr__delta_chunks *c, int which, int64_t first, int64_t count)
{
    tsr_layout view = part_of(c, TSR__DELTA_DECAY, first, count).layout;
    view.offset += which;
    view.shape[5] = 1;
    if (which == CARRY_LAST)
        view.shape[4] = 1;
    return tsr__tensor_alias(c->array[TSR__DELTA_DECAY], &view);
}

static tsr_status multiply(const tsr__delta_chunks *c, tsr_tensor y, tsr_tensor a, tsr_tensor b)
{
    return tsr_binary(c->call->tokens.stream, &y, &a, &b, TSR_BINARY_MUL);
}

static tsr_status product(const tsr__delta_chunks *c, tsr_tensor y, tsr_tensor a, bool transpose_a,
                          tsr_tensor b, bool accumulate)
{
    return tsr_matmul(c->call->tokens.stream, &y, &a, &b,
                      tsr_matmul_params(.transpose_a = transpose_a, .accumulate = accumulate));
}

/* Inside the chunks -------------------------------------------------------------------------- */

/* The blocks of `size` rows and columns of an array [chunk, chunk], one of every 2 · size rows:
 * those `down` blocks below and `right` blocks right of every second block on the diagonal. */
static tsr_tensor blocks_of(const tsr__delta_chunks *c, tsr__delta_array array, int64_t size,
                            int64_t down, int64_t right)
{
    const tsr_layout *all = &c->array[array]->layout;
    tsr_layout view = {
        .dtype = TSR_F32,
        .ndim = 4,
        .shape = {all->shape[0] * c->call->heads, CHUNK / 2 / size, size, size},
        .strides = {(int64_t)CHUNK * CHUNK, 2 * size * (CHUNK + 1), CHUNK, 1},
        .offset = all->offset + size * (down * CHUNK + right),
    };
    return tsr__tensor_alias(c->array[array], &view);
}

tsr_status tsr__delta_join_blocks(const tsr__delta_chunks *c)
{
    const tsr__delta_array inverse = TSR__DELTA_INVERSE, scratch = TSR__DELTA_CARRIED;
    for (int64_t size = TSR__DELTA_BLOCK; size < CHUNK; size *= 2) {
        /* The blocks below the diagonal become T22 · (−A21 · T11). */
        TSR__TRY(product(c, blocks_of(c, scratch, size, 0, 0), blocks_of(c, inverse, size, 1, 0),
                         false, blocks_of(c, inverse, size, 0, 0), false));
        TSR__TRY(product(c, blocks_of(c, inverse, size, 1, 0), blocks_of(c, inverse, size, 1, 1),
                         false, blocks_of(c, scratch, size, 0, 0), false));
    }
    return multiply(c, part_of(c, TSR__DELTA_W, 0, c->chunks),
                    part_of(c, TSR__DELTA_KEYS, 0, c->chunks),
                    numbers_of(c, CARRIED, 0, c->chunks));
}

/* From chunk to chunk ------------------------------------------------------------------------ */

/* The state before a chunk. */
static tsr_tensor state_before(const tsr__delta_chunks *c, int64_t chunk)
{
    return part_of(c, TSR__DELTA_STATES, chunk % c->kept_states, 1);
}

/* A state as the caller has it, [batch, heads, key_dim, value_dim]. */
static tsr_tensor as_callers(const tsr__delta_chunks *c, const tsr_tensor *state)
{
    const tsr_layout *l = &state->layout;
    const tsr_layout view = {
        .dtype = TSR_F32,
        .ndim = 4,
        .shape = {l->shape[0], c->call->heads, l->shape[4], l->shape[5]},
        .strides = {l->strides[0], l->shape[4] * l->shape[5], l->strides[4], 1},
        .offset = l->offset,
    };
    return tsr__tensor_alias(state, &view);
}

static tsr_status store_state(const tsr__delta_chunks *c, const tsr_tensor *new_state)
{
    const tsr_tensor last = state_before(c, c->chunks);
    tsr_tensor from = as_callers(c, &last), to = *new_state;
    return c->call->tokens.write_slots ? tsr__delta_store_state(c, &from, new_state)
                                       : tsr_copy(c->call->tokens.stream, &to, &from);
}

static tsr_status load_state(const tsr__delta_chunks *c)
{
    const tsr__delta *call = c->call;
    tsr_stream *stream = call->tokens.stream;
    tsr_tensor first = state_before(c, 0), to = as_callers(c, &first);
    if (!call->params.state)
        return tsr_fill(stream, &to, 0);
    if (call->tokens.read_slots)
        return tsr_index_select(stream, &to, call->params.state, 0, call->tokens.read_slots);
    return tsr_copy(stream, &to, call->params.state);
}

/* The array of D. The backward pass keeps it, and does not need U. */
static tsr__delta_array deltas(const tsr__delta_chunks *c)
{
    return c->backward ? TSR__DELTA_DELTAS : TSR__DELTA_U;
}

/* Computes R and D of a chunk. */
static tsr_status run_changes(const tsr__delta_chunks *c, int64_t chunk)
{
    const tsr_tensor r = part_of(c, TSR__DELTA_VALUES, chunk, 1);
    TSR__TRY(
        product(c, r, part_of(c, TSR__DELTA_W, chunk, 1), false, state_before(c, chunk), true));
    return product(c, part_of(c, deltas(c), chunk, 1), part_of(c, TSR__DELTA_INVERSE, chunk, 1),
                   false, r, false);
}

/* Computes the state after a chunk. R is no longer needed: its place gets out · D. */
static tsr_status run_state(const tsr__delta_chunks *c, int64_t chunk)
{
    const tsr_tensor out_d = part_of(c, TSR__DELTA_VALUES, chunk, 1),
                     next = state_before(c, chunk + 1);
    TSR__TRY(multiply(c, out_d, part_of(c, deltas(c), chunk, 1), numbers_of(c, OUT, chunk, 1)));
    TSR__TRY(multiply(c, next, state_before(c, chunk), numbers_of(c, CARRY_LAST, chunk, 1)));
    return product(c, next, part_of(c, TSR__DELTA_KEYS, chunk, 1), true, out_d, true);
}

/* Copies rows of chunks to tokens: `count` chunks of each row, of `tokens` tokens each. */
static tsr_status copy_tokens(const tsr__delta_chunks *c, const tsr_tensor *y, uint32_t y_stride,
                              int64_t first, int64_t count, int64_t tokens)
{
    const tsr__delta *call = c->call;
    const int64_t row = y_stride, value = call->value_dim;
    const tsr_layout *all = &c->array[TSR__DELTA_VALUES]->layout;
    const tsr_layout from = {
        .dtype = TSR_F32,
        .ndim = 5,
        .shape = {call->tokens.batch, count, call->heads, tokens, value},
        .strides = {c->chunks * all->strides[0], all->strides[0], CHUNK * value, value, 1},
        .offset = all->offset + first * all->strides[0],
    };
    tsr_layout to = from;
    to.dtype = y->layout.dtype;
    to.offset = y->layout.offset + first * CHUNK * row;
    to.strides[0] = call->tokens.tokens * row;
    to.strides[1] = CHUNK * row;
    to.strides[2] = value;
    to.strides[3] = row;
    tsr_tensor rows = tsr__tensor_alias(c->array[TSR__DELTA_VALUES], &from),
               out = tsr__tensor_alias(y, &to);
    return count > 0 && tokens > 0 ? tsr_copy(call->tokens.stream, &out, &rows) : TSR_OK;
}

/* Computes y of some chunks, in the place of R. */
static tsr_status run_results(const tsr__delta_chunks *c, const tsr_tensor *y, uint32_t y_stride,
                              int64_t first, int64_t count)
{
    const tsr_tensor rows = part_of(c, TSR__DELTA_VALUES, first, count);
    const int64_t whole = c->call->tokens.tokens / CHUNK - first,
                  copied = whole < count ? whole : count;
    TSR__TRY(product(c, rows, part_of(c, TSR__DELTA_QUERIES, first, count), false,
                     part_of(c, TSR__DELTA_STATES, 0, count), false));
    TSR__TRY(multiply(c, rows, rows, numbers_of(c, CARRY, first, count)));
    TSR__TRY(product(c, rows, part_of(c, TSR__DELTA_WEIGHTS, first, count), false,
                     part_of(c, deltas(c), first, count), true));
    TSR__TRY(copy_tokens(c, y, y_stride, first, copied, CHUNK));
    return copy_tokens(c, y, y_stride, first + copied, count - copied,
                       c->call->tokens.tokens % CHUNK);
}

tsr_status tsr__delta_scan_products(const tsr__delta_chunks *c, const tsr_tensor *y,
                                    uint32_t y_stride, const tsr_tensor *new_state)
{
    TSR__TRY(load_state(c));
    for (int64_t first = 0, end; first < c->chunks; first = end) {
        end = first + c->kept_states < c->chunks ? first + c->kept_states : c->chunks;
        for (int64_t chunk = first; chunk < end; chunk++) {
            TSR__TRY(run_changes(c, chunk));
            if (chunk + 1 < end)
                TSR__TRY(run_state(c, chunk));
        }
        if (y)
            TSR__TRY(run_results(c, y, y_stride, first, end - first));
        if (end < c->chunks || new_state)
            TSR__TRY(run_state(c, end - 1));
    }
    return new_state ? store_state(c, new_state) : TSR_OK;
}

/* The gradient ------------------------------------------------------------------------------- */

/* A caller's state or its gradient as chunks have it, [batch, 1, heads…, key_dim, value_dim]. */
static tsr_tensor as_chunk(const tsr__delta_chunks *c, const tsr_tensor *state)
{
    tsr_layout view = part_of(c, TSR__DELTA_DSTATES, 0, 1).layout;
    view.offset = state->layout.offset;
    view.strides[0] = state->layout.strides[0];
    return tsr__tensor_alias(state, &view);
}

/* What all chunks need before the gradient of the state: rows of dy, what they add to dD, carry ·
 * dy in the place of dR, and out · K in the place of M, which is computed later. */
static tsr_status run_gradients_of_rows(const tsr__delta_chunks *c, const tsr_tensor *dy,
                                        uint32_t dy_stride)
{
    const int64_t all = c->chunks;
    const tsr_tensor rows = part_of(c, TSR__DELTA_DY, 0, all);
    TSR__TRY(tsr__delta_value_rows(c, dy, dy_stride, TSR__DELTA_DY));
    TSR__TRY(product(c, part_of(c, TSR__DELTA_DDELTAS, 0, all),
                     part_of(c, TSR__DELTA_WEIGHTS, 0, all), true, rows, false));
    TSR__TRY(multiply(c, part_of(c, TSR__DELTA_DR, 0, all), rows, numbers_of(c, CARRY, 0, all)));
    return multiply(c, part_of(c, TSR__DELTA_M, 0, all), part_of(c, TSR__DELTA_KEYS, 0, all),
                    numbers_of(c, OUT, 0, all));
}

/* Computes dD and dR of a chunk, and the gradient of the state before it unless nobody needs it:
 * dS ← carry[last] · dS + Qᵀ·(carry · dy) + K'ᵀ·dR. */
static tsr_status run_state_gradient(const tsr__delta_chunks *c, int64_t chunk,
                                     const tsr_tensor *before)
{
    const tsr_tensor after = part_of(c, TSR__DELTA_DSTATES, chunk, 1),
                     dd = part_of(c, TSR__DELTA_DDELTAS, chunk, 1),
                     dr = part_of(c, TSR__DELTA_DR, chunk, 1);
    TSR__TRY(product(c, dd, part_of(c, TSR__DELTA_M, chunk, 1), false, after, true));
    if (before) {
        TSR__TRY(multiply(c, *before, after, numbers_of(c, CARRY_LAST, chunk, 1)));
        TSR__TRY(product(c, *before, part_of(c, TSR__DELTA_QUERIES, chunk, 1), true, dr, true));
    }
    TSR__TRY(product(c, dr, part_of(c, TSR__DELTA_INVERSE, chunk, 1), true, dd, false));
    return before ? product(c, *before, part_of(c, TSR__DELTA_W, chunk, 1), true, dr, true)
                  : TSR_OK;
}

/* Computes carry[last] · Σ S·dS of each chunk. */
static tsr_status run_dots(const tsr__delta_chunks *c)
{
    tsr_tensor dots = part_of(c, TSR__DELTA_DOTS, 0, c->chunks),
               states = part_of(c, TSR__DELTA_STATES, 0, c->chunks),
               gradients = part_of(c, TSR__DELTA_DSTATES, 0, c->chunks);
    const int64_t elements = c->call->key_dim * c->call->value_dim;
    states.layout.shape[4] = gradients.layout.shape[5] = 1;
    states.layout.shape[5] = gradients.layout.shape[4] = elements;
    states.layout.strides[4] = elements;
    gradients.layout.strides[4] = 1;
    TSR__TRY(product(c, dots, states, false, gradients, false));
    return multiply(c, dots, dots, numbers_of(c, CARRY_LAST, 0, c->chunks));
}

tsr_status tsr__delta_scan_grad_products(const tsr__delta_chunks *c, const tsr_tensor *dy,
                                         uint32_t dy_stride, const tsr_tensor *dnew_state,
                                         const tsr_tensor *dstate)
{
    tsr_stream *stream = c->call->tokens.stream;
    const tsr_tensor last = part_of(c, TSR__DELTA_DSTATES, c->chunks - 1, 1);
    tsr_tensor to = as_callers(c, &last);
    TSR__TRY(dnew_state ? tsr_copy(stream, &to, dnew_state) : tsr_fill(stream, &to, 0));
    TSR__TRY(run_gradients_of_rows(c, dy, dy_stride));
    for (int64_t chunk = c->chunks - 1; chunk > 0; chunk--) {
        const tsr_tensor before = part_of(c, TSR__DELTA_DSTATES, chunk - 1, 1);
        TSR__TRY(run_state_gradient(c, chunk, &before));
    }
    const tsr_tensor first = dstate ? as_chunk(c, dstate) : last;
    TSR__TRY(run_state_gradient(c, 0, dstate ? &first : NULL));
    return run_dots(c);
}
