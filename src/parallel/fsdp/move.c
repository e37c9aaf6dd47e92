/* Moves the values and the state of a model's shards to a model of another set of ranks. For each
 * parameter, one exchange between all ranks moves its values and state; if there are copies, a
 * second exchange fills them. */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "parallel/fsdp/fsdp.h"

#define KINDS 4

static const char who[] = "fsdp_rebuild";

static uint64_t element_bytes(const tsr__fsdp_param *p)
{
    return tsr_dtype_size(tsr__fsdp_dtype(p)) +
           4 * (uint64_t)((p->master != NULL) + (p->moment1 != NULL) + (p->moment2 != NULL));
}

static void kinds_of(const tsr__fsdp_param *p, tsr_tensor *out[KINDS])
{
    out[0] = p->value;
    out[1] = p->master;
    out[2] = p->moment1;
    out[3] = p->moment2;
}

static bool was_resident(const tsr__fsdp_move *m, int param)
{
    return m->from_size == 1 || tsr_shard_plan_param(m->plan, (uint64_t)param)->always_gather;
}

/* The number of ranges of a parameter in the old model: one for each rank of the old group, or a
 * single one that every rank has. */
static int range_count(const tsr__fsdp_move *m, int param)
{
    return was_resident(m, param) ? 1 : m->from_size;
}

/* Returns the rank that sends elements of range `q` to `rank`. */
static int provider_of(const tsr__fsdp_move *m, int param, int q, int rank)
{
    if (!was_resident(m, param))
        return m->providers[q];
    if (m->has[rank])
        return rank;
    /* `rank` has joined. Different parameters come from different ranks, so that all ranks that
     * have them share the sending. */
    int found = -1;
    for (int r = 0, skip = param % m->to->size; found < 0; r = (r + 1) % m->to->size)
        if (m->has[r] && skip-- <= 0)
            found = r;
    return found;
}

/* Returns the range that `rank` gets: that of its own shard or, with `copies`, that of the shard of
 * which it keeps a copy. */
static tsr_status wanted_range(const tsr__fsdp_move *m, int param, int rank, bool copies,
                               tsr_shard_range *out)
{
    const tsr_fsdp *to = m->to;
    *out = (tsr_shard_range){0};
    if (copies && to->params[param].resident)
        return TSR_OK;
    const int of =
        copies ? tsr__fsdp_holder(rank, to->size - to->replica.distance, to->size) : rank;
    return tsr_shard_plan_range(to->plan, (uint64_t)param, of, out);
}

static tsr_shard_range common_range(tsr_shard_range a, tsr_shard_range b)
{
    const uint64_t start = tsr__max_u64(a.start, b.start);
    const uint64_t end = tsr__min_u64(a.start + a.count, b.start + b.count);
    return (tsr_shard_range){start, end > start ? end - start : 0};
}

/* Returns which elements of the shard of the old rank `q` the rank `from` sends to `to`: those that
 * are in the new shard of `to` or, with `copies`, in the shard of which `to` keeps a copy. The
 * range is empty if another rank sends them. */
static tsr_status range_to_move(const tsr__fsdp_move *m, int param, bool copies, int q, int from,
                                int to, tsr_shard_range *out)
{
    tsr_shard_range old, new;
    *out = (tsr_shard_range){0};
    if (provider_of(m, param, q, to) != from)
        return TSR_OK;
    TSR__TRY(tsr_shard_plan_range(m->plan, (uint64_t)param, q, &old));
    TSR__TRY(wanted_range(m, param, to, copies, &new));
    *out = common_range(old, new);
    return TSR_OK;
}

/* Returns this rank's memory of range `q` of the old model. */
static const tsr__fsdp_param *source_param(const tsr__fsdp_move *m, int param, int q)
{
    const bool own = was_resident(m, param) || q == m->from->rank;
    return own ? &m->from->params[param] : &m->from->replica.params[param];
}

/* Copies elements between host memory and shards: the values, and then each kind of state. */
static tsr_status copy_elements(tsr_stream *stream, const tsr__fsdp_param *p, tsr_shard_range range,
                                bool upload, uint8_t *data)
{
    tsr_tensor *kinds[KINDS];
    kinds_of(p, kinds);
    for (int k = 0; k < KINDS; k++) {
        tsr_tensor *view = NULL;
        if (!kinds[k])
            continue;
        const int64_t first = (int64_t)(range.start - p->range.start);
        const uint64_t bytes = range.count * tsr_dtype_size(tsr_tensor_layout(kinds[k])->dtype);
        TSR__TRY(tsr_tensor_slice(kinds[k], 0, first, first + (int64_t)range.count, 1, &view));
        tsr_status status = upload ? tsr_tensor_upload(stream, view, data, bytes)
                                   : tsr_tensor_download(stream, view, data, bytes);
        tsr_tensor_destroy(&view);
        TSR__TRY(status);
        data += bytes;
    }
    return TSR_OK;
}

/* The exchange of one parameter. The memory is for the largest of all exchanges. */
typedef struct exchange {
    uint64_t *sent_bytes, *received_bytes; /* [ranks] */
    uint8_t *sent, *received;
    uint64_t sent_most, received_most;
} exchange;

static tsr_status count_bytes(const tsr__fsdp_move *m, int param, bool copies, exchange *x)
{
    const uint64_t each = element_bytes(&m->to->params[param]);
    const int me = m->to->rank;
    uint64_t sent = 0, received = 0;
    for (int r = 0; r < m->to->size; r++) {
        x->sent_bytes[r] = x->received_bytes[r] = 0;
        for (int q = 0; q < range_count(m, param); q++) {
            tsr_shard_range out, in;
            TSR__TRY(range_to_move(m, param, copies, q, me, r, &out));
            TSR__TRY(range_to_move(m, param, copies, q, r, me, &in));
            x->sent_bytes[r] += out.count * each;
            x->received_bytes[r] += in.count * each;
        }
        sent += x->sent_bytes[r];
        received += x->received_bytes[r];
    }
    x->sent_most = tsr__max_u64(x->sent_most, sent);
    x->received_most = tsr__max_u64(x->received_most, received);
    return TSR_OK;
}

static tsr_status pack_param(const tsr__fsdp_move *m, int param, bool copies, uint8_t *data)
{
    const uint64_t each = element_bytes(&m->to->params[param]);
    for (int r = 0; r < m->to->size; r++)
        for (int q = 0; q < range_count(m, param); q++) {
            tsr_shard_range range;
            TSR__TRY(range_to_move(m, param, copies, q, m->to->rank, r, &range));
            if (range.count == 0)
                continue;
            TSR__TRY(copy_elements(m->to->stream, source_param(m, param, q), range, false, data));
            data += range.count * each;
        }
    return TSR_OK;
}

static tsr_status unpack_param(const tsr__fsdp_move *m, int param, bool copies, uint8_t *data)
{
    const uint64_t each = element_bytes(&m->to->params[param]);
    const tsr__fsdp_param *p = copies ? &m->to->replica.params[param] : &m->to->params[param];
    for (int r = 0; r < m->to->size; r++)
        for (int q = 0; q < range_count(m, param); q++) {
            tsr_shard_range range;
            TSR__TRY(range_to_move(m, param, copies, q, r, m->to->rank, &range));
            if (range.count == 0)
                continue;
            TSR__TRY(copy_elements(m->to->stream, p, range, true, data));
            data += range.count * each;
        }
    return TSR_OK;
}

/* Moves one parameter. An error of this rank alone is stored in *mine and is not returned, because
 * the other ranks do not know of it and continue with the exchange. */
static tsr_status move_param(const tsr__fsdp_move *m, int param, bool copies, exchange *x,
                             tsr_status *mine)
{
    TSR__TRY(count_bytes(m, param, copies, x));
    if (*mine == TSR_OK)
        *mine = pack_param(m, param, copies, x->sent);
    TSR__TRY(tsr_comm_all_to_all_v(tsr_group_comm(m->to->group), x->sent, x->sent_bytes,
                                   x->received, x->received_bytes, TSR_U8, NULL));
    if (*mine == TSR_OK)
        *mine = unpack_param(m, param, copies, x->received);
    return TSR_OK;
}

static tsr_status allocate_exchange(const tsr__fsdp_move *m, exchange *x)
{
    const int sets = m->to->replica.comm ? 2 : 1;
    x->sent_bytes = tsr__calloc((size_t)m->to->size, sizeof *x->sent_bytes);
    x->received_bytes = tsr__calloc((size_t)m->to->size, sizeof *x->received_bytes);
    if (!x->sent_bytes || !x->received_bytes)
        return TSR_ERR_NO_MEMORY;
    for (int set = 0; set < sets; set++)
        for (int i = 0; i < m->to->param_count; i++)
            TSR__TRY(count_bytes(m, i, set == 1, x));
    x->sent = tsr__calloc(1, x->sent_most);
    x->received = tsr__calloc(1, x->received_most);
    return x->sent && x->received ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status move_params(const tsr__fsdp_move *m, exchange *x, tsr_status *mine)
{
    const int sets = m->to->replica.comm ? 2 : 1;
    for (int set = 0; set < sets; set++)
        for (int i = 0; i < m->to->param_count; i++)
            TSR__TRY(move_param(m, i, set == 1, x, mine));
    return TSR_OK;
}

tsr_status tsr__fsdp_move_all(const tsr__fsdp_move *move)
{
    exchange x = {0};
    tsr_status mine = TSR_OK;
    tsr_status status =
        tsr__checkpoint_agree(tsr_group_comm(move->to->group), who, allocate_exchange(move, &x));
    if (status == TSR_OK)
        status = move_params(move, &x, &mine);
    tsr__free(x.sent_bytes);
    tsr__free(x.received_bytes);
    tsr__free(x.sent);
    tsr__free(x.received);
    return status == TSR_OK ? mine : status;
}
