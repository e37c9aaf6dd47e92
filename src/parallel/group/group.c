/* Creates and destroys groups, chooses the path of each group, and implements queries. */
#include "parallel/group/group.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/environment.h"
#include "base/struct_size.h"
#include "gpu/internal.h"

#define PIECE_BYTES (UINT64_C(2) << 20)
/* 16 bytes for each of 4096 ranks: one element of 8 bytes to send, and one to receive */
#define MIN_PIECE_BYTES (UINT64_C(64) << 10)
#define MAX_PIECE_BYTES (UINT64_C(1) << 30)
#define PAGE_BYTES (UINT64_C(4) << 10)

static _Atomic(tsr_group *) chosen;

void tsr_group_set_default(tsr_group *group)
{
    atomic_store(&chosen, group);
}

tsr_group *tsr_group_default(void)
{
    return atomic_load(&chosen);
}

static const char *wire_name(tsr_dtype wire)
{
    return wire == 0 ? "not set" : tsr_dtype_name(wire);
}

/* Lets all ranks choose the same path, because all of them must make the same calls of the
 * communicator. If one rank needs the staged path, all ranks use it. */
static tsr_status agree_on_path(tsr_group *group, const tsr_group_params *params)
{
    bool shares = tsr__device_shares_tensors(tsr_stream_device(group->stream));
    int64_t need[4] = {!shares || params->force_staging || tsr__env_switch("TESSERA_FORCE_STAGING"),
                       (int64_t)(params->piece_bytes ? params->piece_bytes : PIECE_BYTES),
                       (int64_t)params->wire, -(int64_t)params->wire};
    TSR__TRY(tsr_comm_all_reduce(group->comm, need, need, 4, TSR_I64, TSR_OP_MAX, NULL));
    TSR__REQUIRE(need[2] == -need[3], "group_create: wire is %s on one rank and %s on another",
                 wire_name((tsr_dtype)-need[3]), wire_name((tsr_dtype)need[2]));
    group->path = need[0] != 0 ? &tsr__group_staged : &tsr__group_direct;
    group->piece_bytes =
        tsr__align_up_u64(tsr__max_u64((uint64_t)need[1], MIN_PIECE_BYTES), PAGE_BYTES);
    return TSR_OK;
}

static tsr_status create_staging_ring(tsr_group *group)
{
    const int64_t size = (int64_t)group->piece_bytes;
    for (int i = 0; i < TSR__GROUP_PIECES; i++) {
        tsr__group_piece *piece = &group->piece[i];
        void *host;
        TSR__TRY(tsr_tensor_create_host(tsr_stream_device(group->stream), TSR_U8, 1, &size,
                                        &piece->memory));
        TSR__TRY(tsr_tensor_map(piece->memory, &host));
        piece->host = host;
    }
    return TSR_OK;
}

static tsr_status init_group(tsr_group *group, tsr_comm *comm, const tsr_group_params *params)
{
    if (comm) {
        TSR__TRY(tsr_comm_duplicate(comm, &group->comm));
        group->rank = tsr_comm_rank(group->comm);
        group->size = tsr_comm_size(group->comm);
    }
    group->counts = tsr__calloc((size_t)group->size, sizeof *group->counts);
    group->recv_counts = tsr__calloc((size_t)group->size, sizeof *group->recv_counts);
    if (!group->counts || !group->recv_counts)
        return TSR_ERR_NO_MEMORY;
    if (group->size > 1)
        TSR__TRY(agree_on_path(group, params));
    if (group->path == &tsr__group_staged)
        TSR__TRY(create_staging_ring(group));
    return tsr__group_join_set(group);
}

tsr_status tsr_group_create(tsr_comm *comm, tsr_stream *stream, const tsr_group_params *params,
                            tsr_group **out)
{
    TSR__TAKE(tsr_group_params, params);
    TSR__REQUIRE(stream && out, "group_create: %s is NULL", stream ? "out" : "stream");
    TSR__REQUIRE(params->piece_bytes <= MAX_PIECE_BYTES,
                 "group_create: piece_bytes is %llu; at most %llu are allowed",
                 (unsigned long long)params->piece_bytes, (unsigned long long)MAX_PIECE_BYTES);
    TSR__REQUIRE(params->precision >= TSR_PRECISION_DEFAULT &&
                     params->precision <= TSR_PRECISION_MEDIUM,
                 "group_create: unknown precision %d", (int)params->precision);
    TSR__TRY(tsr__group_wire_check("group_create", params->wire));
    tsr_group *group = tsr__calloc(1, sizeof *group);
    if (!group)
        return TSR_ERR_NO_MEMORY;
    group->wire = params->wire;
    group->allow_int8 = params->allow_int8;
    group->precision = params->precision;
    group->stream = stream;
    group->size = 1;
    group->path = &tsr__group_direct;
    tsr_status status = init_group(group, comm, params);
    if (status != TSR_OK) {
        tsr_group_destroy(&group);
        return status;
    }
    *out = group;
    return TSR_OK;
}

void tsr_group_destroy(tsr_group **group)
{
    if (!group || !*group)
        return;
    tsr_group *closing = *group;
    *group = NULL;
    tsr_group *expected = closing;
    atomic_compare_exchange_strong(&chosen, &expected, NULL);
    if (closing->deferred > 0)
        tsr__stream_cancel_steps(closing->stream);
    if (closing->queue)
        tsr__group_abort(closing, "destroyed its group while requests were in progress");
    tsr_comm_destroy(&closing->comm);
    tsr__group_leave_set(closing);
    for (int i = 0; i < TSR__GROUP_PIECES; i++)
        tsr_tensor_destroy(&closing->piece[i].memory);
    tsr__free(closing->counts);
    tsr__free(closing->recv_counts);
    tsr__free(closing);
}

int tsr_group_rank(const tsr_group *group)
{
    return group ? group->rank : 0;
}

int tsr_group_size(const tsr_group *group)
{
    return group ? group->size : 1;
}

tsr_stream *tsr_group_stream(const tsr_group *group)
{
    return group ? group->stream : NULL;
}

tsr_comm *tsr_group_comm(const tsr_group *group)
{
    return group ? group->comm : NULL;
}

tsr_dtype tsr__group_wire(const tsr_group *group)
{
    return group ? group->wire : (tsr_dtype)0;
}

bool tsr__group_allows_int8(const tsr_group *group)
{
    return group && group->allow_int8;
}

tsr_precision tsr__group_precision(const tsr_group *group, const tsr_tensor *weight)
{
    if (group && group->precision != TSR_PRECISION_DEFAULT)
        return group->precision;
    return tsr_tensor_layout(weight)->dtype == TSR_F32 ? TSR_PRECISION_HIGHEST : TSR_PRECISION_HIGH;
}

tsr_status tsr_group_get_stats(const tsr_group *group, tsr_group_stats *out)
{
    TSR__REQUIRE(group && out, "group_get_stats: %s is NULL", group ? "out" : "group");
    tsr_group_stats stats = group->stats;
    stats.staged = group->path == &tsr__group_staged;
    TSR__GIVE(tsr_group_stats, &stats, out);
    return TSR_OK;
}

void tsr_group_reset_stats(tsr_group *group)
{
    if (group)
        group->stats = (tsr_group_stats){0};
}
