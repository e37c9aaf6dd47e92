#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "parallel/checkpoint/checkpoint.h"

/* Failures --------------------------------------------------------------------------------------
 */

typedef struct failure {
    int32_t status;
    char text[508];
} failure;

static tsr_status all_reduce_min(tsr_comm *comm, int64_t *values, uint64_t count)
{
    tsr_request *request = NULL;
    TSR__TRY(tsr_comm_all_reduce_start(comm, values, values, count, TSR_I64, TSR_OP_MIN,
                                       TSR__CHECKPOINT_PATIENCE_NS, &request));
    return tsr_request_wait(&request);
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
    TSR__TRY(tsr_comm_broadcast(comm, &first, sizeof first, TSR_U8, (int)failed));
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
    TSR__TRY(tsr_comm_broadcast(comm, &first, 1, TSR_I64, 0));
    return tsr__checkpoint_agree(
        comm, who,
        first == value ? TSR_OK
                       : tsr__fail(TSR_ERR_INVALID, "%s: %s not the same as on rank 0", who, what));
}

/* Division of the writing -----------------------------------------------------------------------
 */

typedef struct region {
    uint64_t dim, offset, length, first, count;
} region;

typedef struct owned {
    region of;
    int rank;
} owned;

static region region_of(const tsr_checkpoint_entry *entry)
{
    uint64_t size;
    region mine = {.dim = entry->shard_dim < 0 ? 0 : (uint64_t)entry->shard_dim,
                   .first = entry->first,
                   .count = entry->count};
    tsr__checkpoint_along(entry, &size, &mine.offset, &mine.length);
    return mine;
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_place(const void *a, const void *b)
{
    const owned *x = a, *y = b;
    int order = compare(x->of.offset, y->of.offset);
    if (order == 0)
        order = compare(x->of.length, y->of.length);
    if (order == 0)
        order = compare(x->of.first, y->of.first);
    if (order == 0)
        order = compare(x->of.count, y->of.count);
    return order != 0 ? order : x->rank - y->rank;
}

static bool same_part(const owned *a, const owned *b)
{
    return a->of.offset == b->of.offset && a->of.length == b->of.length;
}

static tsr_status other_dim(const char *who, const tsr_checkpoint_entry *entry, const owned *a,
                            const owned *b)
{
    return tsr__fail(TSR_ERR_INVALID,
                     "%s: '%s': rank %d has a part of dim %d, rank %d one of dim %d", who,
                     entry->name, a->rank, (int)a->of.dim, b->rank, (int)b->of.dim);
}

static tsr_status gap(const char *who, const tsr_checkpoint_entry *entry, const char *where,
                      uint64_t from, uint64_t to)
{
    return tsr__fail(TSR_ERR_INVALID, "%s: '%s': no rank has elements %" PRIu64 " to %" PRIu64 "%s",
                     who, entry->name, from, to - 1, where);
}

static tsr_status twice(const char *who, const tsr_checkpoint_entry *entry, const owned *a,
                        const owned *b)
{
    return tsr__fail(TSR_ERR_INVALID,
                     "%s: '%s': the parts of rank %d and rank %d overlap, and are not the same",
                     who, entry->name, a->rank, b->rank);
}

/* Checks that regions cover the full tensor. They are sorted, and there are no duplicates and no
 * empty ones. Along the divided dimension, each part must start where the previous one ends. Within
 * a part, each range must start where the previous one ends. */
static tsr_status check_cover(const char *who, const tsr_checkpoint_entry *entry, const owned *list,
                              int count)
{
    const tsr__checkpoint_part shape = tsr__checkpoint_part_of(entry);
    char where[64];
    uint64_t size, unused, along = 0;
    tsr__checkpoint_along(entry, &size, &unused, &unused);
    if (tsr__checkpoint_elements(entry) == 0)
        return TSR_OK;
    const uint64_t inner = shape.whole_row / size;
    snprintf(where, sizeof where, " along dim %d", entry->shard_dim < 0 ? 0 : entry->shard_dim);
    for (int i = 0; i < count;) {
        const region *part = &list[i].of;
        if (part->offset > along)
            return gap(who, entry, where, along, part->offset);
        if (part->offset < along)
            return twice(who, entry, &list[i - 1], &list[i]);
        const uint64_t elements = shape.outer * part->length * inner;
        uint64_t covered = 0;
        int first = i;
        for (; i < count && same_part(&list[first], &list[i]); i++) {
            if (list[i].of.first > covered)
                return gap(who, entry, " of a part", covered, list[i].of.first);
            if (list[i].of.first < covered)
                return twice(who, entry, &list[i - 1], &list[i]);
            covered += list[i].of.count;
        }
        if (covered < elements)
            return gap(who, entry, " of a part", covered, elements);
        along += part->length;
    }
    return along < size ? gap(who, entry, where, along, size) : TSR_OK;
}

/* Checks one entry, which all ranks describe in regions[ranks][index]. Sets *mine to whether this
 * rank writes its region. list[ranks] is scratch memory. */
static tsr_status divide(const char *who, const tsr_checkpoint_entry *entry, int ranks, int rank,
                         const region *const *regions, int index, owned *list, bool *mine)
{
    int count = 0, kept = 0;
    for (int r = 0; r < ranks; r++)
        if (regions[r][index].count > 0)
            list[count++] = (owned){regions[r][index], r};
    if (count > 0)
        qsort(list, (size_t)count, sizeof *list, by_place);
    *mine = false;
    for (int i = 1; i < count; i++)
        if (list[i].of.dim != list[0].of.dim)
            return other_dim(who, entry, &list[0], &list[i]);
    for (int i = 0; i < count; i++) {
        /* Equal regions are sorted by rank, so the one of the lowest rank comes first and is
         * kept. */
        if (kept > 0 && memcmp(&list[kept - 1].of, &list[i].of, sizeof(region)) == 0)
            continue;
        *mine = *mine || list[i].rank == rank;
        list[kept++] = list[i];
    }
    /* If this rank has no elements, its shard_dim may differ from that of the ranks that have
     * some. */
    tsr_checkpoint_entry along = *entry;
    if (kept > 0 && along.shard_dim != (int)list[0].of.dim) {
        along.shard_dim = (int)list[0].of.dim;
        along.offset = along.length = 0;
    }
    return check_cover(who, &along, list, kept);
}

/* Entries are processed in groups of this size, because the tables for many ranks would need too
 * much memory otherwise. */
#define GROUP 128
#define COMBINED 4096 /* checksums that are exchanged in one call */

typedef struct tables {
    region *mine, *all; /* [GROUP], [ranks][GROUP] */
    const region **of;  /* [ranks] */
    owned *list;        /* [ranks] */
} tables;

static tsr_status divide_group(tsr_comm *comm, const char *who, int count,
                               const tsr_checkpoint_entry *entries, tables *t, bool *mine,
                               bool *complete)
{
    const int ranks = comm ? tsr_comm_size(comm) : 1, rank = comm ? tsr_comm_rank(comm) : 0;
    for (int i = 0; i < count; i++)
        t->mine[i] = region_of(&entries[i]);
    const uint64_t bytes = (uint64_t)count * sizeof(region);
    if (comm)
        TSR__TRY(tsr_comm_all_gather(comm, t->mine, t->all, bytes, TSR_U8));
    else
        memcpy(t->all, t->mine, bytes);
    for (int r = 0; r < ranks; r++)
        t->of[r] = t->all + (size_t)r * (size_t)count;
    /* The tables are the same on all ranks, so all ranks stop at the same error. */
    for (int i = 0; i < count; i++) {
        if (!complete) {
            TSR__TRY(divide(who, &entries[i], ranks, rank, t->of, i, t->list, &mine[i]));
            continue;
        }
        const tsr__error before = tsr__error_take();
        complete[i] = divide(who, &entries[i], ranks, rank, t->of, i, t->list, &mine[i]) == TSR_OK;
        tsr__error_put_back(&before);
    }
    return TSR_OK;
}

static tsr_status divide_all(tsr_comm *comm, const char *who, int count,
                             const tsr_checkpoint_entry *entries, bool *mine, bool *complete)
{
    const size_t ranks = comm ? (size_t)tsr_comm_size(comm) : 1;
    tables t = {
        .mine = tsr__calloc(GROUP, sizeof(region)),
        .all = tsr__calloc(ranks * GROUP, sizeof(region)),
        .of = tsr__calloc(ranks, sizeof *t.of),
        .list = tsr__calloc(ranks, sizeof *t.list),
    };
    tsr_status status = t.mine && t.all && t.of && t.list ? TSR_OK : TSR_ERR_NO_MEMORY;
    status = tsr__checkpoint_agree(comm, who, status);
    for (int at = 0; at < count && status == TSR_OK; at += GROUP) {
        int group = count - at < GROUP ? count - at : GROUP;
        status = divide_group(comm, who, group, entries + at, &t, mine + at,
                              complete ? complete + at : NULL);
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
    return divide_all(comm, who, count, entries, mine, NULL);
}

tsr_status tsr__checkpoint_cover(tsr_comm *comm, const char *who, int count,
                                 const tsr_checkpoint_entry *entries, bool *mine, bool *complete)
{
    return divide_all(comm, who, count, entries, mine, complete);
}

/* Checksums -------------------------------------------------------------------------------------
 */

tsr_status tsr__checkpoint_combine(tsr_comm *comm, const char *who, int count, uint32_t *states)
{
    if (!comm || tsr_comm_size(comm) == 1)
        return TSR_OK;
    const int ranks = tsr_comm_size(comm), most = count < COMBINED ? count : COMBINED;
    uint32_t *all = tsr__calloc((size_t)ranks * (size_t)most, sizeof *all);
    tsr_status status = tsr__checkpoint_agree(comm, who, all ? TSR_OK : TSR_ERR_NO_MEMORY);
    for (int at = 0; at < count && status == TSR_OK; at += most) {
        const int some = count - at < most ? count - at : most;
        status = tsr_comm_all_gather(comm, states + at, all, (uint64_t)some, TSR_U32);
        for (int i = 0; i < some && status == TSR_OK; i++) {
            states[at + i] = 0;
            for (int r = 0; r < ranks; r++)
                states[at + i] ^= all[(size_t)r * (size_t)some + (size_t)i];
        }
    }
    tsr__free(all);
    return status;
}
