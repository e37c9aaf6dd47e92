/* Delta nets over sequences that ranks divide. The states go through the chunks in the order of the
 * sequence: the rank that has a chunk computes it and broadcasts the states after it, and in the
 * backward pass the gradients of the states before it, in the opposite order. The ranks' chunks are
 * therefore computed one after the other; everything else in a layer is computed by all ranks at
 * the same time. */
#include "base/error.h"
#include "parallel/layers/context.h"
#include "parallel/layers/delta_net.h"

/* States, of which one broadcast sends all. */
typedef struct carried {
    tsr_tensor *all;
    tsr__delta_states states; /* views of `all` */
} carried;

static tsr_status carried_new(const tsr__delta_net *net, tsr__temps *temps, const tsr_tensor *from,
                              int64_t batch, carried *out)
{
    const int64_t channels = 2 * net->key_heads * net->key_dim + net->heads * net->value_dim,
                  conv[3] = {batch, channels, net->taps - 1},
                  state[4] = {batch, net->heads, net->key_dim, net->value_dim},
                  counts[2] = {conv[0] * conv[1] * conv[2],
                               state[0] * state[1] * state[2] * state[3]},
                  count = counts[0] + counts[1];
    tsr_stream *stream = net->base.stream;
    tsr_tensor *view;
    *out = (carried){0};
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 1, &count, &out->all));
    TSR__TRY(from ? tsr_copy(stream, out->all, from) : tsr_fill(stream, out->all, 0));
    TSR__TRY(tsr__temp_slice(temps, out->all, 0, counts[0], counts[1], &view));
    TSR__TRY(tsr__temp_reshape(temps, view, 4, state, &out->states.state));
    if (net->taps == 1)
        return TSR_OK;
    TSR__TRY(tsr__temp_slice(temps, out->all, 0, 0, counts[0], &view));
    return tsr__temp_reshape(temps, view, 3, conv, &out->states.conv);
}

static tsr_status run_chunk(const tsr__delta_net *net, const tsr__context *c, tsr__temps *temps,
                            tsr__delta_run *run, int chunk, const tsr_tensor *rows,
                            const tsr_tensor *chunk_starts, const carried *carry, tsr_tensor *heads)
{
    tsr_tensor *own_rows, *own_heads, *to, *starts = NULL;
    if (chunk_starts)
        TSR__TRY(tsr__context_new_chunk(c, temps, chunk_starts, chunk, true, &starts));
    TSR__TRY(tsr__context_new_chunk(c, temps, rows, chunk, true, &own_rows));
    TSR__TRY(tsr__context_new_chunk(c, temps, heads, chunk, false, &own_heads));
    TSR__TRY(run(net, temps, own_rows, starts, &carry->states, own_heads));
    TSR__TRY(tsr__context_chunk_of(c, temps, heads, chunk, &to));
    return tsr_copy(net->base.stream, to, own_heads);
}

tsr_status tsr__context_delta_run(const tsr__delta_net *net, const tsr__context *c,
                                  tsr__temps *temps, tsr__delta_run *run, const tsr_tensor *rows,
                                  const tsr_tensor *chunk_starts, tsr_tensor *heads,
                                  tsr_tensor *before[2])
{
    const int ranks = tsr_group_size(c->group), own = tsr_group_rank(c->group);
    const int64_t batch = tsr_tensor_layout(rows)->shape[0];
    carried carry, kept;
    TSR__TRY(carried_new(net, temps, NULL, batch, &carry));
    for (int i = 0; i < 2 * ranks; i++) {
        const int owner = tsr__context_owner(c, i), chunk = i >= ranks;
        if (owner == own && tsr__context_chunk(c, own, chunk) > 0) {
            if (before) {
                TSR__TRY(carried_new(net, temps, carry.all, batch, &kept));
                before[chunk] = kept.all;
            }
            TSR__TRY(run_chunk(net, c, temps, run, chunk, rows, chunk_starts, &carry, heads));
        }
        if (i + 1 < 2 * ranks)
            TSR__TRY(tsr_group_broadcast(c->group, carry.all, owner, NULL));
    }
    return TSR_OK;
}

/* Copies the gradients of q, k and v before the convolution, and of beta and alpha, which are the
 * features around z. */
static tsr_status put_gradients(const tsr__delta_net *net, tsr__temps *temps,
                                const tsr_tensor *from, const tsr_tensor *to)
{
    const int64_t channels = 2 * net->key_heads * net->key_dim + net->heads * net->value_dim,
                  features = tsr_tensor_layout(from)->shape[2],
                  parts[2][2] = {{0, channels}, {features - 2 * net->heads, 2 * net->heads}};
    for (int i = 0; i < 2; i++) {
        tsr_tensor *in, *out;
        TSR__TRY(tsr__temp_slice(temps, from, 2, parts[i][0], parts[i][1], &in));
        TSR__TRY(tsr__temp_slice(temps, to, 2, parts[i][0], parts[i][1], &out));
        TSR__TRY(tsr_copy(net->base.stream, out, in));
    }
    return TSR_OK;
}

static tsr_status chunk_grad(tsr__delta_net *net, const tsr__context *c, tsr__temps *temps,
                             tsr__delta_run_grad *run, int chunk, const tsr_tensor *rows,
                             const tsr_tensor *chunk_starts, const tsr_tensor *before,
                             const carried *d, const tsr_tensor *dheads, const tsr_tensor *drows)
{
    tsr_tensor *own_rows, *own_dheads, *own_drows, *to, *starts = NULL;
    carried states;
    if (chunk_starts)
        TSR__TRY(tsr__context_new_chunk(c, temps, chunk_starts, chunk, true, &starts));
    TSR__TRY(carried_new(net, temps, before, tsr_tensor_layout(rows)->shape[0], &states));
    TSR__TRY(tsr__context_new_chunk(c, temps, rows, chunk, true, &own_rows));
    TSR__TRY(tsr__context_new_chunk(c, temps, dheads, chunk, true, &own_dheads));
    TSR__TRY(tsr__context_new_chunk(c, temps, drows, chunk, false, &own_drows));
    TSR__TRY(run(net, temps, own_rows, starts, &states.states, &d->states, own_dheads, own_drows));
    TSR__TRY(tsr__context_chunk_of(c, temps, drows, chunk, &to));
    return put_gradients(net, temps, own_drows, to);
}

tsr_status tsr__context_delta_run_grad(tsr__delta_net *net, const tsr__context *c,
                                       tsr__temps *temps, tsr__delta_run_grad *run,
                                       const tsr_tensor *rows, const tsr_tensor *chunk_starts,
                                       tsr_tensor *const before[2], const tsr_tensor *dheads,
                                       tsr_tensor *drows)
{
    const int ranks = tsr_group_size(c->group), own = tsr_group_rank(c->group);
    carried d;
    TSR__TRY(carried_new(net, temps, NULL, tsr_tensor_layout(rows)->shape[0], &d));
    for (int i = 2 * ranks - 1; i >= 0; i--) {
        const int owner = tsr__context_owner(c, i), chunk = i >= ranks;
        if (owner == own && before[chunk])
            TSR__TRY(chunk_grad(net, c, temps, run, chunk, rows, chunk_starts, before[chunk], &d,
                                dheads, drows));
        if (i > 0)
            TSR__TRY(tsr_group_broadcast(c->group, d.all, owner, NULL));
    }
    return TSR_OK;
}
