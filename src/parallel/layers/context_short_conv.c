/* Short convolutions over sequences that ranks divide. As with delta nets (context_delta_net.c),
 * the states, here the last inputs of the convolution, go through the chunks in the order of the
 * sequence, and their gradients in the opposite order. */
#include "base/error.h"
#include "parallel/layers/context.h"
#include "parallel/layers/short_conv.h"
#include "tessera/recurrent.h"

/* Creates states [batch, channels, taps − 1], copies of `from`, or 0 if that is NULL. */
static tsr_status new_state(const tsr__short_conv *conv, tsr__temps *temps, const tsr_tensor *from,
                            int64_t batch, tsr_tensor **out)
{
    const int64_t shape[3] = {batch, conv->channels, conv->taps - 1};
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 3, shape, out));
    return from ? tsr_copy(temps->stream, *out, from) : tsr_fill(temps->stream, *out, 0);
}

static tsr_status convolve_chunk(const tsr__context_conv *call, int chunk, tsr_tensor *state,
                                 const tsr_tensor *convolved)
{
    const tsr__context *c = call->context;
    tsr__temps *temps = call->temps;
    tsr_tensor *inputs, *results, *starts = NULL, *to;
    TSR__TRY(tsr__context_new_chunk(c, temps, call->inputs, chunk, true, &inputs));
    TSR__TRY(tsr__context_new_chunk(c, temps, convolved, chunk, false, &results));
    if (call->chunk_starts)
        TSR__TRY(tsr__context_new_chunk(c, temps, call->chunk_starts, chunk, true, &starts));
    TSR__TRY(tsr_causal_conv(temps->stream, results, state, inputs, call->weight,
                             tsr_causal_conv_params(.state = state, .starts = starts)));
    TSR__TRY(tsr__context_chunk_of(c, temps, convolved, chunk, &to));
    return tsr_copy(temps->stream, to, results);
}

tsr_status tsr__context_convolve(const tsr__context_conv *call, tsr_tensor *convolved,
                                 tsr_tensor *before[2])
{
    const tsr__context *c = call->context;
    const int ranks = tsr_group_size(c->group), own = tsr_group_rank(c->group);
    const int64_t batch = tsr_tensor_layout(call->inputs)->shape[0];
    tsr_tensor *state;
    TSR__TRY(new_state(call->conv, call->temps, NULL, batch, &state));
    for (int i = 0; i < 2 * ranks; i++) {
        const int owner = tsr__context_owner(c, i), chunk = i >= ranks;
        if (owner == own && tsr__context_chunk(c, own, chunk) > 0) {
            if (before)
                TSR__TRY(new_state(call->conv, call->temps, state, batch, &before[chunk]));
            TSR__TRY(convolve_chunk(call, chunk, state, convolved));
        }
        if (i + 1 < 2 * ranks)
            TSR__TRY(tsr_group_broadcast(c->group, state, owner, NULL));
    }
    return TSR_OK;
}

/* Replaces d, the gradient of the state after a chunk, by that of the state before it. */
static tsr_status chunk_grad(const tsr__context_conv *call, int chunk, const tsr_tensor *before,
                             tsr_tensor *d, const tsr_tensor *dconvolved, const tsr_tensor *dinputs,
                             tsr_tensor *dweight)
{
    const tsr__context *c = call->context;
    tsr__temps *temps = call->temps;
    tsr_tensor *inputs, *dy, *dx, *dstate, *starts = NULL, *sum = NULL, *to;
    TSR__TRY(tsr__context_new_chunk(c, temps, call->inputs, chunk, true, &inputs));
    TSR__TRY(tsr__context_new_chunk(c, temps, dconvolved, chunk, true, &dy));
    TSR__TRY(tsr__context_new_chunk(c, temps, dinputs, chunk, false, &dx));
    TSR__TRY(new_state(call->conv, temps, NULL, tsr_tensor_layout(inputs)->shape[0], &dstate));
    if (call->chunk_starts)
        TSR__TRY(tsr__context_new_chunk(c, temps, call->chunk_starts, chunk, true, &starts));
    if (dweight)
        TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, tsr_tensor_layout(dweight)->shape, &sum));
    TSR__TRY(tsr_causal_conv_grad(
        temps->stream, tsr_causal_conv_grads(.dx = dx, .dweight = sum, .dstate = dstate), dy, d,
        inputs, call->weight, tsr_causal_conv_params(.state = before, .starts = starts)));
    if (dweight)
        TSR__TRY(tsr_axpy(temps->stream, dweight, 1, sum));
    TSR__TRY(tsr_copy(temps->stream, d, dstate));
    TSR__TRY(tsr__context_chunk_of(c, temps, dinputs, chunk, &to));
    return tsr_copy(temps->stream, to, dx);
}

tsr_status tsr__context_convolve_grad(const tsr__context_conv *call, tsr_tensor *const before[2],
                                      const tsr_tensor *dconvolved, const tsr_tensor *dinputs,
                                      tsr_tensor *dweight)
{
    const tsr__context *c = call->context;
    const int ranks = tsr_group_size(c->group), own = tsr_group_rank(c->group);
    tsr_tensor *d;
    TSR__TRY(
        new_state(call->conv, call->temps, NULL, tsr_tensor_layout(call->inputs)->shape[0], &d));
    if (dweight)
        TSR__TRY(tsr_fill(call->temps->stream, dweight, 0));
    for (int i = 2 * ranks - 1; i >= 0; i--) {
        const int owner = tsr__context_owner(c, i), chunk = i >= ranks;
        if (owner == own && before[chunk])
            TSR__TRY(chunk_grad(call, chunk, before[chunk], d, dconvolved, dinputs, dweight));
        if (i > 0)
            TSR__TRY(tsr_group_broadcast(c->group, d, owner, NULL));
    }
    return TSR_OK;
}
