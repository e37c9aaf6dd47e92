/* Copies of shards. Each rank has a copy of the shards of one other rank, with moments and master
 * copies, and also applies every optimizer step to the copy, with the gradients that the other rank
 * sends. So only gradients are sent, and a rank that is lost leaves no copy that is half updated.
 *
 * The gradients of a unit are sent after its last backward pass before a step, while the device
 * computes those of other units. Which pass is the last one is predicted from the previous step. If
 * the prediction is wrong, all gradients are sent when the step is made. */
#include "base/alloc.h"
#include "base/checked.h"
#include "gpu/internal.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/group/group.h"

#define TAG 1
#define PIECE_BYTES UINT64_C(4194304) /* the largest piece of a transfer through host memory */

/* Choosing ----------------------------------------------------------------------------------- */

static int on_other_hosts(const tsr_comm *comm, int distance)
{
    const int size = tsr_comm_size(comm);
    int count = 0;
    for (int r = 0; r < size; r++)
        count += tsr_comm_host(comm, r) != tsr_comm_host(comm, tsr__fsdp_holder(r, distance, size));
    return count;
}

/* Returns the smallest distance at which the most ranks have their copy on another host. */
static int choose_distance(const tsr_comm *comm)
{
    const int size = tsr_comm_size(comm);
    int best = 1, most = -1;
    for (int distance = 1; distance < size && most < size; distance++) {
        const int count = on_other_hosts(comm, distance);
        if (count > most) {
            most = count;
            best = distance;
        }
    }
    return best;
}

tsr_status tsr__fsdp_choose_replica(tsr_fsdp *model, int replicas)
{
    tsr__fsdp_replica *r = &model->replica;
    tsr_comm *comm = tsr_group_comm(model->group);
    if (model->size == 1)
        return TSR_OK;
    TSR__TRY(tsr__checkpoint_same(comm, "fsdp_create", "replicas is", (uint64_t)replicas << 1));
    if (replicas == 0)
        return TSR_OK;
    int64_t most = (int64_t)tsr__min_u64(model->most_bytes, INT64_MAX);
    TSR__TRY(tsr_comm_all_reduce(comm, &most, &most, 1, TSR_I64, TSR_OP_MIN, NULL));
    model->most_bytes = (uint64_t)most;
    TSR__TRY(tsr_comm_duplicate(comm, &r->comm));
    TSR__TRY(tsr_group_create(r->comm, model->stream, NULL, &r->group));
    r->distance = choose_distance(r->comm);
    r->to = tsr__fsdp_holder(model->rank, r->distance, model->size);
    r->from = tsr__fsdp_holder(model->rank, model->size - r->distance, model->size);
    return TSR_OK;
}

/* Memory ------------------------------------------------------------------------------------- */

static uint64_t largest_chunk(const tsr__fsdp_pools *pools)
{
    const tsr__fsdp_pool *each[] = {&pools->values, &pools->gradients, &pools->state};
    uint64_t bytes = 0;
    for (int i = 0; i < 3; i++)
        for (size_t k = 0; k < each[i]->count; k++)
            bytes = tsr__max_u64(bytes, each[i]->chunks[k].bytes);
    return bytes;
}

static tsr_status allocate_host_pieces(tsr_fsdp *model)
{
    tsr__fsdp_replica *r = &model->replica;
    if (tsr__device_shares_tensors(model->device))
        return TSR_OK;
    r->sent = tsr__calloc(1, tsr__min_u64(largest_chunk(&model->pools), PIECE_BYTES) + 1);
    r->received = tsr__calloc(1, tsr__min_u64(largest_chunk(&r->pools), PIECE_BYTES) + 1);
    return r->sent && r->received ? TSR_OK : TSR_ERR_NO_MEMORY;
}

tsr_status tsr__fsdp_make_replica(tsr_fsdp *model)
{
    tsr__fsdp_replica *r = &model->replica;
    if (!r->comm)
        return TSR_OK;
    r->params = tsr__calloc((size_t)model->param_count, sizeof *r->params);
    if (!r->params)
        return TSR_ERR_NO_MEMORY;
    for (int u = 0; u < model->unit_count; u++)
        model->units[u].expected = 1;
    for (int i = 0; i < model->param_count; i++) {
        const tsr__fsdp_param *p = &model->params[i];
        r->params[i].seen = (tsr_parameter){.dtype = p->seen.dtype, .ndim = p->seen.ndim};
        if (!p->resident) /* resident parameters need no copy: every rank has them */
            r->params[i].range =
                (tsr_shard_range){(uint64_t)p->starts[r->from], (uint64_t)p->sizes[r->from]};
    }
    TSR__TRY(tsr__fsdp_make_shards(model, r->params, &r->pools));
    return allocate_host_pieces(model);
}

void tsr__fsdp_finish_replica(tsr_fsdp *model)
{
    tsr__fsdp_replica *r = &model->replica;
    for (int i = 0; r->params && i < model->param_count; i++)
        (void)!tsr_request_wait(&r->params[i].reducing); /* the results are not needed any more */
    tsr_group_destroy(&r->group);
    if (r->params)
        tsr__fsdp_free_shards(r->params, model->param_count, &r->pools);
    tsr__free(r->params);
    tsr__free(r->sent);
    tsr__free(r->received);
    tsr_comm_destroy(&r->comm);
    *r = (tsr__fsdp_replica){0};
}

/* Sending ------------------------------------------------------------------------------------ */

/* A range of a chunk. The rank at the other end of the transfer uses the same range. */
typedef struct piece {
    tsr_tensor *tensor; /* NULL: the piece is empty */
    void *data;         /* where the communicator reads or writes the piece */
    uint64_t bytes;
} piece;

/* Sends the piece `out` to rank `to`, and receives `in` from rank `from`. */
static tsr_status exchange_pieces(const tsr__fsdp_replica *r, const piece *out, const piece *in)
{
    tsr_request *sending = NULL, *receiving = NULL;
    tsr_status status = TSR_OK;
    if (out->bytes > 0)
        status = tsr_comm_send(r->comm, out->data, out->bytes, TSR_U8, r->to, TAG, &sending);
    if (status == TSR_OK && in->bytes > 0)
        status = tsr_comm_recv(r->comm, in->data, in->bytes, TSR_U8, r->from, TAG, &receiving);
    if (status == TSR_OK)
        status = tsr_request_wait(&receiving);
    if (status == TSR_OK)
        status = tsr_request_wait(&sending);
    tsr_request_cancel(&receiving);
    tsr_request_cancel(&sending);
    return status;
}

/* Sets *out to the piece at `at_bytes` of a chunk. Its data are at `host`, or in the chunk's memory
 * if `host` is NULL. */
static tsr_status piece_of(const tsr__fsdp_chunk *chunk, uint64_t at_bytes, void *host, piece *out)
{
    *out = (piece){.data = host};
    if (at_bytes >= chunk->bytes)
        return TSR_OK;
    out->bytes = tsr__min_u64(chunk->bytes - at_bytes, PIECE_BYTES);
    TSR__TRY(tsr_tensor_slice(chunk->memory, 0, (int64_t)(at_bytes / 4),
                              (int64_t)((at_bytes + out->bytes) / 4), 1, &out->tensor));
    return host ? TSR_OK : tsr_tensor_map(out->tensor, &out->data);
}

static tsr_status exchange_chunk_pieces(tsr_fsdp *model, uint64_t at_bytes,
                                        const tsr__fsdp_chunk *own, const tsr__fsdp_chunk *copy)
{
    const bool through_host = model->replica.sent != NULL;
    piece out = {0}, in = {0};
    tsr_status status = piece_of(own, at_bytes, model->replica.sent, &out);
    if (status == TSR_OK)
        status = piece_of(copy, at_bytes, model->replica.received, &in);
    if (status == TSR_OK && through_host && out.bytes > 0)
        status = tsr_tensor_download(model->stream, out.tensor, out.data, out.bytes);
    if (status == TSR_OK)
        status = exchange_pieces(&model->replica, &out, &in);
    if (status == TSR_OK && through_host && in.bytes > 0)
        status = tsr_tensor_upload(model->stream, in.tensor, in.data, in.bytes);
    tsr_tensor_destroy(&out.tensor);
    tsr_tensor_destroy(&in.tensor);
    return status;
}

static tsr_status exchange_chunks(tsr_fsdp *model, const tsr__fsdp_chunk *own,
                                  const tsr__fsdp_chunk *copy)
{
    const uint64_t end = tsr__max_u64(own->bytes, copy->bytes);
    for (uint64_t at_bytes = 0; at_bytes < end; at_bytes += PIECE_BYTES)
        TSR__TRY(exchange_chunk_pieces(model, at_bytes, own, copy));
    return TSR_OK;
}

/* Returns the part of chunk `k` of a pool that is still to be copied. *left is the number of bytes
 * of the pool from this chunk on that are to be copied; the call subtracts those of the chunk. */
static tsr__fsdp_chunk take_chunk(const tsr__fsdp_pool *pool, size_t k, uint64_t *left)
{
    if (*left == 0)
        return (tsr__fsdp_chunk){0};
    tsr__fsdp_chunk chunk = pool->chunks[k];
    chunk.bytes = tsr__min_u64(chunk.bytes, *left);
    *left -= chunk.bytes;
    return chunk;
}

/* Copies this rank's pool to the rank `to`, and the pool of the rank `from` to this rank. */
static tsr_status exchange_pools(tsr_fsdp *model, const tsr__fsdp_pool *own,
                                 const tsr__fsdp_pool *copy)
{
    uint64_t own_left = own->shard_bytes, copy_left = copy->shard_bytes;
    for (size_t k = 0; own_left > 0 || copy_left > 0; k++) {
        const tsr__fsdp_chunk out = take_chunk(own, k, &own_left);
        const tsr__fsdp_chunk in = take_chunk(copy, k, &copy_left);
        TSR__TRY(exchange_chunks(model, &out, &in));
    }
    return TSR_OK;
}

static tsr_status add_context(const tsr_fsdp *model, const char *what, tsr_status status)
{
    return status == TSR_OK ? TSR_OK
                            : tsr__fail_context(status, "copying %s of rank %d to rank %d", what,
                                                model->rank, model->replica.to);
}

tsr_status tsr__fsdp_refresh(tsr_fsdp *model)
{
    tsr__fsdp_replica *r = &model->replica;
    if (!r->params)
        return TSR_OK;
    tsr_status status = tsr_stream_wait(model->stream);
    if (status == TSR_OK)
        status = exchange_pools(model, &model->pools.values, &r->pools.values);
    if (status == TSR_OK)
        status = exchange_pools(model, &model->pools.state, &r->pools.state);
    return add_context(model, "the shards", status);
}

/* Gradients ---------------------------------------------------------------------------------- */

tsr_status tsr__fsdp_send_ahead(tsr_fsdp *model, int unit)
{
    tsr__fsdp_replica *r = &model->replica;
    tsr__fsdp_unit *u = &model->units[unit];
    if (!r->params)
        return TSR_OK;
    u->sent = ++u->passes == u->expected;
    for (int i = u->first; u->sent && i < u->first + u->count; i++) {
        tsr__fsdp_param *copy = &r->params[i];
        if (model->params[i].resident)
            continue;
        TSR__TRY(add_context(model, "the gradients",
                             tsr__group_exchange_start(r->group, model->params[i].grad, r->to,
                                                       copy->grad, r->from, &copy->reducing)));
    }
    return TSR_OK;
}

tsr_status tsr__fsdp_wait_sent(tsr_fsdp *model, int param)
{
    if (!model->replica.params)
        return TSR_OK;
    return add_context(model, "the gradients",
                       tsr_request_wait(&model->replica.params[param].reducing));
}

/* Waits for all exchanges, even if one has failed. */
static tsr_status wait_all_sent(tsr_fsdp *model)
{
    tsr_status first = TSR_OK;
    for (int i = 0; i < model->param_count; i++) {
        tsr_status status = tsr__fsdp_wait_sent(model, i);
        first = first == TSR_OK ? status : first;
    }
    return first;
}

tsr_status tsr__fsdp_stop_sending(tsr_fsdp *model)
{
    tsr_status status = wait_all_sent(model);
    model->replica.changed = false;
    for (int u = 0; u < model->unit_count; u++) {
        model->units[u].passes = 0;
        model->units[u].sent = false;
    }
    return status;
}

/* Returns whether the copy lacks a gradient of this rank, or has one that may have changed since it
 * was sent. */
static bool is_stale(const tsr_fsdp *model)
{
    for (int u = 0; u < model->unit_count; u++)
        if (model->units[u].passes > 0 && !model->units[u].sent)
            return true;
    return model->replica.changed;
}

/* Sends all gradients if the copy of this rank's gradients is stale. Receives those of rank `from`
 * if this rank's copy of them is stale. */
static tsr_status send_stale(tsr_fsdp *model)
{
    tsr__fsdp_replica *r = &model->replica;
    uint8_t mine = is_stale(model), theirs = 0;
    static const tsr__fsdp_pool nothing;
    TSR__TRY(exchange_pieces(r, &(piece){.data = &mine, .bytes = 1},
                             &(piece){.data = &theirs, .bytes = 1}));
    if (!mine && !theirs)
        return TSR_OK;
    TSR__TRY(tsr_stream_wait(model->stream));
    return exchange_pools(model, mine ? &model->pools.gradients : &nothing,
                          theirs ? &r->pools.gradients : &nothing);
}

tsr_status tsr__fsdp_send_gradients(tsr_fsdp *model)
{
    tsr__fsdp_replica *r = &model->replica;
    if (!r->params)
        return TSR_OK;
    for (int i = 0; i < model->param_count; i++)
        r->params[i].grad_holds = model->params[i].grad_holds;
    TSR__TRY(wait_all_sent(model));
    TSR__TRY(add_context(model, "the gradients", send_stale(model)));
    model->replica.changed = false;
    for (int u = 0; u < model->unit_count; u++) {
        tsr__fsdp_unit *unit = &model->units[u];
        unit->expected = unit->passes > 0 ? unit->passes : unit->expected;
        unit->passes = 0;
        unit->sent = false;
    }
    return TSR_OK;
}
