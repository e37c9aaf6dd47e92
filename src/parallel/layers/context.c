/* Divisions of sequences over the ranks of a context group. */
#include "parallel/layers/context.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "parallel/layers/layer.h"

void tsr__context_forget(tsr__context **context)
{
    tsr__context *closing = *context;
    *context = NULL;
    if (!closing || --closing->users > 0)
        return;
    tsr_tensor_destroy(&closing->gathered);
    tsr_tensor_destroy(&closing->places);
    tsr_tensor_destroy(&closing->positions);
    tsr__free(closing->sizes);
    tsr__free(closing);
}

tsr__context *tsr__context_keep(tsr__context *context)
{
    if (context)
        context->users++;
    return context;
}

int64_t tsr__context_tokens(const tsr__context *context)
{
    return context->tokens;
}

int64_t tsr__context_front(const tsr__context *context)
{
    return (int64_t)context->chunks[0].count;
}

int64_t tsr__context_place(const tsr__context *context, int64_t token)
{
    const int64_t front = (int64_t)context->chunks[0].count;
    return token < front ? (int64_t)context->chunks[0].start + token
                         : (int64_t)context->chunks[1].start + token - front;
}

static tsr_status upload(const tsr_group *group, const int32_t *values, int64_t count,
                         tsr_tensor **out)
{
    tsr_stream *stream = tsr_group_stream(group);
    TSR__TRY(tsr_tensor_create(tsr_stream_device(stream), TSR_I32, 1, &count, out));
    return tsr_tensor_upload(stream, *out, values, (uint64_t)count * sizeof *values);
}

static tsr_status upload_indices(tsr__context *c)
{
    const int ranks = tsr_group_size(c->group), own = tsr_group_rank(c->group);
    int32_t *gathered = tsr__calloc(2 * (size_t)c->tokens + 1, sizeof *gathered);
    if (!gathered)
        return TSR_ERR_NO_MEMORY;
    int32_t *places = gathered + c->tokens;
    int64_t index = 0, first = 0;
    for (int r = 0; r < ranks; r++) {
        tsr_shard_range chunks[2];
        tsr__context_chunks(ranks, c->sizes, r, chunks);
        first = r == own ? index : first;
        for (int i = 0; i < 2; i++)
            for (uint64_t t = 0; t < chunks[i].count; t++, index++) {
                places[index] = (int32_t)(chunks[i].start + t);
                gathered[places[index]] = (int32_t)index;
            }
    }
    tsr_status status = upload(c->group, gathered, c->tokens, &c->gathered);
    if (status == TSR_OK)
        status = upload(c->group, places, c->tokens, &c->places);
    if (status == TSR_OK)
        status = upload(c->group, places + first, c->sizes[own], &c->positions);
    tsr__free(gathered);
    return status;
}

/* Takes over `sizes`. */
static tsr_status create(tsr_group *group, int64_t rows, int64_t tokens, int64_t *sizes,
                         tsr__context **out)
{
    tsr__context *c = tsr__calloc(1, sizeof *c);
    if (!c) {
        tsr__free(sizes);
        return TSR_ERR_NO_MEMORY;
    }
    *c = (tsr__context){.users = 1, .group = group, .rows = rows, .tokens = tokens, .sizes = sizes};
    tsr__context_chunks(tsr_group_size(group), sizes, tsr_group_rank(group), c->chunks);
    const tsr_status status = upload_indices(c);
    if (status == TSR_OK)
        *out = c;
    else
        tsr__context_forget(&c);
    return status;
}

/* Checks what the ranks have, [ranks][rows, tokens], and adds up the tokens. Every rank finds the
 * same error. */
static tsr_status check_all(const int64_t *all, int ranks, int64_t *sizes, int64_t *tokens)
{
    *tokens = 0;
    for (int r = 0; r < ranks; r++) {
        const int64_t *own = all + 2 * (size_t)r;
        sizes[r] = own[1];
        *tokens += sizes[r];
        TSR__REQUIRE(own[0] == all[0], "context group: rank %d has %lld rows, but rank 0 has %lld",
                     r, (long long)own[0], (long long)all[0]);
        TSR__REQUIRE(*tokens <= INT32_MAX, "context group: a row has more than %d tokens",
                     INT32_MAX);
    }
    return TSR_OK;
}

/* Gathers count numbers of each rank, without waiting for what the device computes. */
static tsr_status gather(tsr_group *group, const int64_t *own, uint64_t count, int64_t *all)
{
    tsr_request *request = NULL;
    TSR__TRY(tsr_comm_all_gather(tsr_group_comm(group), own, all, count, TSR_I64, &request));
    return tsr__group_wait_beside(group, &request);
}

tsr_status tsr__context_all_pass(tsr_group *group, const char *what, tsr_status own)
{
    const int ranks = tsr_group_size(group);
    const int64_t failed = own != TSR_OK;
    int64_t *all = tsr__calloc((size_t)ranks, sizeof *all);
    if (!all)
        return TSR_ERR_NO_MEMORY;
    const tsr__error text = tsr__error_take();
    tsr_status status = gather(group, &failed, 1, all);
    for (int r = 0; r < ranks && status == TSR_OK && own == TSR_OK; r++)
        if (all[r] != 0)
            status = tsr__fail(TSR_ERR_INVALID, "%s on rank %d of the context group", what, r);
    tsr__free(all);
    if (own == TSR_OK)
        return status;
    tsr__error_put_back(&text);
    return own;
}

tsr_status tsr__context_agree(tsr_group *group, int64_t rows, int64_t tokens,
                              tsr__context **context)
{
    const int ranks = tsr_group_size(group);
    int64_t *all = tsr__calloc(2 * (size_t)ranks, sizeof *all), own[] = {rows, tokens}, sum = 0;
    int64_t *sizes = tsr__calloc((size_t)ranks, sizeof *sizes);
    tsr_status status = all && sizes ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = gather(group, own, 2, all);
    if (status == TSR_OK)
        status = check_all(all, ranks, sizes, &sum);
    tsr__free(all);
    if (status != TSR_OK) {
        tsr__free(sizes);
        return status;
    }
    tsr__context *old = *context;
    if (old && old->rows == rows && memcmp(old->sizes, sizes, (size_t)ranks * sizeof *sizes) == 0) {
        tsr__free(sizes);
        return TSR_OK;
    }
    tsr__context *made = NULL;
    TSR__TRY(create(group, rows, sum, sizes, &made));
    tsr__context_forget(context);
    *context = made;
    return TSR_OK;
}

tsr_status tsr__context_check(const tsr_layer *layer, const tsr_group *group)
{
    TSR__REQUIRE(tsr_group_size(group) == 1 || tsr_group_stream(group) == layer->stream,
                 "%s: context_group has another stream than group", layer->who);
    return TSR_OK;
}

tsr_status tsr__context_find(tsr_group *group, const tsr__documents *documents, const tsr_layout *x,
                             tsr__context **kept, tsr__context **out)
{
    *out = documents ? documents->context : NULL;
    if (!group || *out)
        return TSR_OK;
    int64_t rows = 1;
    for (int d = 0; d < x->ndim - 2; d++)
        rows *= x->shape[d];
    TSR__TRY(tsr__context_agree(group, rows, x->shape[x->ndim - 2], kept));
    *out = *kept;
    return TSR_OK;
}

/* Chunks ------------------------------------------------------------------------------------- */

int tsr__context_owner(const tsr__context *c, int chunk)
{
    const int ranks = tsr_group_size(c->group);
    return chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
}

tsr_status tsr__context_chunk_of(const tsr__context *c, tsr__temps *temps, const tsr_tensor *all,
                                 int chunk, tsr_tensor **out)
{
    const int rank = tsr_group_rank(c->group);
    return tsr__temp_slice(temps, all, 1, chunk == 0 ? 0 : tsr__context_chunk(c, rank, 0),
                           tsr__context_chunk(c, rank, chunk), out);
}

tsr_status tsr__context_new_chunk(const tsr__context *c, tsr__temps *temps, const tsr_tensor *all,
                                  int chunk, bool copies, tsr_tensor **out)
{
    tsr_tensor *view;
    TSR__TRY(tsr__context_chunk_of(c, temps, all, chunk, &view));
    const tsr_layout *layout = tsr_tensor_layout(view);
    TSR__TRY(tsr__temp_new(temps, layout->dtype, layout->ndim, layout->shape, out));
    return copies ? tsr_copy(temps->stream, *out, view) : TSR_OK;
}
