#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "parallel/checkpoint/checkpoint.h"
#include "tensor/check.h"

/* Failures ----------------------------------------------------------------------------------- */

typedef struct failure {
    int32_t status;
    char text[508];
} failure;

static tsr_status all_reduce_min(tsr_comm *comm, int64_t *values, uint64_t count)
{
    const uint64_t timeout_ns = tsr_comm_set_timeout(comm, TSR__CHECKPOINT_PATIENCE_NS);
    tsr_status status = tsr_comm_all_reduce(comm, values, values, count, TSR_I64, TSR_OP_MIN, NULL);
    tsr_comm_set_timeout(comm, timeout_ns);
    return status;
}

tsr_status tsr__checkpoint_agree(tsr_comm *comm, const char *who, tsr_status mine)
{
    if (!comm || tsr_comm_size(comm) == 1)
        return mine;
    const int rank = tsr_comm_rank(comm), size = tsr_comm_size(comm);
    failure first = {.status = mine};
    snprintf(first.text, sizeof first.text, "%s", tsr_last_error());
    int64_t failed = mine == TSR_OK ? size : rank;
    TSR__TRY(all_reduce_min(comm, &failed, 1));
    if (failed == size)
        return TSR_OK;
    TSR__TRY(tsr_comm_broadcast(comm, &first, sizeof first, TSR_U8, (int)failed, NULL));
    if (failed == rank)
        return tsr__fail((tsr_status)first.status, "%s", first.text);
    /* The text usually begins with the name of the same function, which must not appear twice. */
    size_t skip = strlen(who);
    bool same = strncmp(first.text, who, skip) == 0 && strncmp(first.text + skip, ": ", 2) == 0;
    return tsr__fail((tsr_status)first.status, "%s: rank %d: %s", who, (int)failed,
                     first.text + (same ? skip + 2 : 0));
}

tsr_status tsr__checkpoint_same(tsr_comm *comm, const char *who, const char *what, uint64_t hash)
{
    if (!comm || tsr_comm_size(comm) == 1)
        return TSR_OK;
    int64_t value = (int64_t)(hash >> 1), first = value;
    TSR__TRY(tsr_comm_broadcast(comm, &first, 1, TSR_I64, 0, NULL));
    return tsr__checkpoint_agree(
        comm, who,
        first == value ? TSR_OK
                       : tsr__fail(TSR_ERR_INVALID, "%s: %s not the same as on rank 0", who, what));
}

/* Entries ------------------------------------------------------------------------------------ */

static uint64_t hash_entry(const tsr_checkpoint_entry *entry)
{
    /* A shard_dim of -1 means that the block is the full tensor, which is all of dimension 0. */
    const int64_t dim = entry->shard_dim < 0 ? 0 : entry->shard_dim;
    const int64_t kind[3] = {(int64_t)entry->dtype, entry->ndim, dim};
    uint64_t hash = tsr__hash(TSR__HASH_START, entry->name, strlen(entry->name) + 1);
    hash = tsr__hash(hash, kind, sizeof kind);
    return tsr__hash(hash, entry->shape, (size_t)entry->ndim * sizeof *entry->shape);
}

static tsr_status compare_entries(const char *who, int count, const tsr_checkpoint_entry *entries,
                                  const uint64_t *first)
{
    for (int i = 0; i < count; i++) {
        const tsr_checkpoint_entry *e = &entries[i];
        char shape[TSR__SHAPE_TEXT];
        TSR__REQUIRE(hash_entry(e) == first[i],
                     "%s: entry %d, '%s' %s %s with shard_dim %d, is different on rank 0", who, i,
                     e->name, tsr__checkpoint_dtype(e->dtype),
                     tsr__shape_format(e->ndim, e->shape, shape, sizeof shape), e->shard_dim);
    }
    return TSR_OK;
}

tsr_status tsr__checkpoint_same_entries(tsr_comm *comm, const char *who, int count,
                                        const tsr_checkpoint_entry *entries)
{
    if (!comm || tsr_comm_size(comm) == 1)
        return TSR_OK;
    int32_t first_count = count;
    TSR__TRY(tsr_comm_broadcast(comm, &first_count, 1, TSR_I32, 0, NULL));
    tsr_status status = TSR_OK;
    if (count != first_count)
        status = tsr__fail(TSR_ERR_INVALID, "%s: this rank has %d entries, and rank 0 has %d", who,
                           count, (int)first_count);
    TSR__TRY(tsr__checkpoint_agree(comm, who, status));
    uint64_t *hashes = tsr__calloc((size_t)count, sizeof *hashes);
    status = tsr__checkpoint_agree(comm, who, hashes ? TSR_OK : TSR_ERR_NO_MEMORY);
    for (int i = 0; i < count && status == TSR_OK; i++)
        hashes[i] = hash_entry(&entries[i]);
    if (status == TSR_OK)
        status = tsr_comm_broadcast(comm, hashes, (uint64_t)count, TSR_I64, 0, NULL);
    if (status == TSR_OK)
        status = tsr__checkpoint_agree(comm, who, compare_entries(who, count, entries, hashes));
    tsr__free(hashes);
    return status;
}

/* Division of the writing -------------------------------------------------------------------- */

/* Entries are processed in groups of this size, because the tables for many ranks would need too
 * much memory otherwise. */
#define GROUP 128
#define COMBINED 4096 /* checksums that are exchanged in one call */

typedef struct tables {
    tsr__region *mine, *all; /* mine[GROUP], all[ranks][GROUP] */
    const tsr__region **of;  /* [ranks] */
    tsr__owned *list;        /* [ranks] */
} tables;

/* Checks one entry, which all ranks describe in regions[ranks][index]. Sets *mine to whether this
 * rank writes its region. list[ranks] is scratch memory. */
static tsr_status divide_entry(const char *who, const tsr_checkpoint_entry *entry, int ranks,
                               int rank, const tsr__region *const *regions, int index,
                               tsr__owned *list, bool *mine)
{
    const tsr__cover cover = {.who = who, .owner = "rank", .unit = "part", .doubles = true};
    int count = 0;
    for (int r = 0; r < ranks; r++)
        if (regions[r][index].count > 0)
            list[count++] = (tsr__owned){regions[r][index], r};
    *mine = false;
    return tsr__cover_check(&cover, entry, list, count, rank, mine);
}

static tsr_status divide_group(tsr_comm *comm, const char *who, int count,
                               const tsr_checkpoint_entry *entries, tables *t, bool *mine,
                               bool *complete)
{
    const int ranks = comm ? tsr_comm_size(comm) : 1, rank = comm ? tsr_comm_rank(comm) : 0;
    for (int i = 0; i < count; i++)
        t->mine[i] = tsr__region_of(&entries[i]);
    const uint64_t bytes = (uint64_t)count * sizeof(tsr__region);
    if (comm)
        TSR__TRY(tsr_comm_all_gather(comm, t->mine, t->all, bytes, TSR_U8, NULL));
    else
        memcpy(t->all, t->mine, bytes);
    for (int r = 0; r < ranks; r++)
        t->of[r] = t->all + (size_t)r * (size_t)count;
    /* The tables are the same on all ranks, so all ranks stop at the same error. */
    for (int i = 0; i < count; i++) {
        if (!complete) {
            TSR__TRY(divide_entry(who, &entries[i], ranks, rank, t->of, i, t->list, &mine[i]));
            continue;
        }
        const tsr__error before = tsr__error_take();
        complete[i] =
            divide_entry(who, &entries[i], ranks, rank, t->of, i, t->list, &mine[i]) == TSR_OK;
        tsr__error_put_back(&before);
    }
    return TSR_OK;
}

static tsr_status divide_entries(tsr_comm *comm, const char *who, int count,
                                 const tsr_checkpoint_entry *entries, bool *mine, bool *complete)
{
    const size_t ranks = comm ? (size_t)tsr_comm_size(comm) : 1;
    tables t = {
        .mine = tsr__calloc(GROUP, sizeof(tsr__region)),
        .all = tsr__calloc(ranks * GROUP, sizeof(tsr__region)),
        .of = tsr__calloc(ranks, sizeof *t.of),
        .list = tsr__calloc(ranks, sizeof *t.list),
    };
    tsr_status status = t.mine && t.all && t.of && t.list ? TSR_OK : TSR_ERR_NO_MEMORY;
    status = tsr__checkpoint_agree(comm, who, status);
    for (int first = 0; first < count && status == TSR_OK; first += GROUP) {
        int group = count - first < GROUP ? count - first : GROUP;
        status = divide_group(comm, who, group, entries + first, &t, mine + first,
                              complete ? complete + first : NULL);
    }
    tsr__free(t.list);
    tsr__free((void *)t.of);
    tsr__free(t.all);
    tsr__free(t.mine);
    return status;
}

tsr_status tsr__checkpoint_divide(tsr_comm *comm, const char *who, int count,
                                  const tsr_checkpoint_entry *entries, bool *mine)
{
    return divide_entries(comm, who, count, entries, mine, NULL);
}

tsr_status tsr__checkpoint_cover(tsr_comm *comm, const char *who, int count,
                                 const tsr_checkpoint_entry *entries, bool *mine, bool *complete)
{
    return divide_entries(comm, who, count, entries, mine, complete);
}

/* Checksums ---------------------------------------------------------------------------------- */

tsr_status tsr__checkpoint_combine(tsr_comm *comm, const char *who, int count, uint32_t *states)
{
    if (!comm || tsr_comm_size(comm) == 1)
        return TSR_OK;
    const int ranks = tsr_comm_size(comm), batch = count < COMBINED ? count : COMBINED;
    uint32_t *gathered = tsr__calloc((size_t)ranks * (size_t)batch, sizeof *gathered);
    tsr_status status = tsr__checkpoint_agree(comm, who, gathered ? TSR_OK : TSR_ERR_NO_MEMORY);
    for (int first = 0; first < count && status == TSR_OK; first += batch) {
        const int size = count - first < batch ? count - first : batch;
        status = tsr_comm_all_gather(comm, states + first, gathered, (uint64_t)size, TSR_U32, NULL);
        for (int i = 0; i < size && status == TSR_OK; i++) {
            states[first + i] = 0;
            for (int r = 0; r < ranks; r++)
                states[first + i] ^= gathered[(size_t)r * (size_t)size + (size_t)i];
        }
    }
    tsr__free(gathered);
    return status;
}
