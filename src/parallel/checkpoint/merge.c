/* Merges the lists of entries of the stages of a pipeline. Every rank then has an entry for every
 * tensor, without elements if only other stages have the tensor. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/checkpoint.h"
#include "tensor/check.h"

/* A rank's description of an entry, as it is sent. The name follows, with its terminating zero. */
typedef struct described {
    int64_t shape[TSR_MAX_DIMS];
    int32_t dtype, ndim, shard_dim, name_bytes;
} described;

/* A description that has been received. */
typedef struct listed {
    described of;
    const char *name;
    int position, rank; /* its position in the lists of all ranks, and the rank that sent it */
    int mine;           /* the index of this rank's entry of that name; -1: none */
} listed;

typedef struct merging {
    tsr_comm *stages;
    const char *who;
    int rank, ranks;
    int count; /* the number of this rank's entries */
    const tsr_checkpoint_entry *entries;
    uint64_t *sizes; /* [ranks]: bytes of each rank's descriptions */
    char *mine, *all;
    listed *list;
    size_t list_count, list_capacity;
} merging;

/* Exchanging --------------------------------------------------------------------------------- */

static tsr_status describe_entries(merging *m)
{
    uint64_t size = 0, end = 0;
    for (int i = 0; i < m->count; i++)
        size += sizeof(described) + strlen(m->entries[i].name) + 1;
    m->mine = tsr__calloc(size, 1);
    m->sizes = m->mine ? tsr__calloc((size_t)m->ranks, sizeof *m->sizes) : NULL;
    if (!m->sizes)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < m->count; i++) {
        const tsr_checkpoint_entry *entry = &m->entries[i];
        described d = {.dtype = (int32_t)entry->dtype,
                       .ndim = entry->ndim,
                       .shard_dim = entry->shard_dim,
                       .name_bytes = (int32_t)strlen(entry->name) + 1};
        memcpy(d.shape, entry->shape, (size_t)entry->ndim * sizeof *d.shape);
        memcpy(m->mine + end, &d, sizeof d);
        memcpy(m->mine + end + sizeof d, entry->name, (size_t)d.name_bytes);
        end += sizeof d + (uint64_t)d.name_bytes;
    }
    m->sizes[m->rank] = size;
    return TSR_OK;
}

static tsr_status exchange_descriptions(merging *m)
{
    uint64_t total = 0;
    TSR__TRY(tsr_comm_all_gather(m->stages, &m->sizes[m->rank], m->sizes, 1, TSR_I64, NULL));
    for (int r = 0; r < m->ranks; r++)
        total += m->sizes[r];
    m->all = tsr__calloc(total, 1);
    TSR__TRY(tsr__checkpoint_agree(m->stages, m->who, m->all ? TSR_OK : TSR_ERR_NO_MEMORY));
    return tsr_comm_all_gather_v(m->stages, m->mine, m->all, m->sizes, TSR_U8, NULL);
}

static tsr_status take_descriptions(merging *m)
{
    const char *next_byte = m->all;
    int own = 0;
    for (int r = 0; r < m->ranks; r++) {
        for (const char *end = next_byte + m->sizes[r]; next_byte < end;) {
            void *list = m->list;
            TSR__TRY(tsr__grow(&list, &m->list_capacity, m->list_count + 1, sizeof *m->list));
            m->list = list;
            listed *next = &m->list[m->list_count];
            *next = (listed){.position = (int)m->list_count, .rank = r, .mine = -1};
            if (r == m->rank)
                next->mine = own++;
            memcpy(&next->of, next_byte, sizeof next->of);
            next->name = next_byte + sizeof next->of;
            next_byte = next->name + next->of.name_bytes;
            m->list_count++;
        }
    }
    return TSR_OK;
}

/* Merging ------------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order != 0 ? order : x->position - y->position;
}

static tsr_status compare_listed(const merging *m, const listed *a, const listed *b)
{
    const bool same = a->of.dtype == b->of.dtype && a->of.ndim == b->of.ndim &&
                      a->of.shard_dim == b->of.shard_dim &&
                      memcmp(a->of.shape, b->of.shape, sizeof a->of.shape) == 0;
    TSR__REQUIRE(same,
                 "%s: '%s' is %s %s with shard_dim %d in stage %d, and %s %s with shard_dim %d in "
                 "stage %d",
                 m->who, a->name, tsr__checkpoint_dtype((tsr_dtype)a->of.dtype),
                 TSR__SHAPE(a->of.ndim, a->of.shape), a->of.shard_dim, a->rank,
                 tsr__checkpoint_dtype((tsr_dtype)b->of.dtype), TSR__SHAPE(b->of.ndim, b->of.shape),
                 b->of.shard_dim, b->rank);
    return TSR_OK;
}

static int by_place(const void *a, const void *b)
{
    return ((const listed *)a)->position - ((const listed *)b)->position;
}

/* Keeps one description of each name, at the position of the first. */
static tsr_status unite_same_names(merging *m)
{
    size_t kept = 0;
    if (m->list_count > 0)
        qsort(m->list, m->list_count, sizeof *m->list, by_name);
    for (size_t i = 0; i < m->list_count; i++) {
        const listed *next = &m->list[i];
        if (kept == 0 || strcmp(m->list[kept - 1].name, next->name) != 0) {
            m->list[kept++] = *next;
            continue;
        }
        TSR__TRY(compare_listed(m, &m->list[kept - 1], next));
        if (next->mine >= 0)
            m->list[kept - 1].mine = next->mine;
    }
    m->list_count = kept;
    if (kept > 0)
        qsort(m->list, kept, sizeof *m->list, by_place);
    return TSR_OK;
}

static tsr_status hand_over_entries(merging *m, tsr__checkpoint_merged *out)
{
    out->entries = tsr__calloc(m->list_count, sizeof *out->entries);
    if (!out->entries)
        return TSR_ERR_NO_MEMORY;
    out->count = (int)m->list_count;
    for (int i = 0; i < out->count; i++) {
        const listed *from = &m->list[i];
        tsr_checkpoint_entry *to = &out->entries[i];
        if (from->mine >= 0) {
            *to = m->entries[from->mine];
            continue;
        }
        *to = (tsr_checkpoint_entry){.name = from->name,
                                     .dtype = (tsr_dtype)from->of.dtype,
                                     .ndim = from->of.ndim,
                                     .shard_dim = from->of.shard_dim};
        memcpy(to->shape, from->of.shape, sizeof to->shape);
    }
    out->names = m->all;
    m->all = NULL;
    return TSR_OK;
}

static tsr_status merge_stages(merging *m, tsr__checkpoint_merged *out)
{
    TSR__TRY(tsr__checkpoint_agree(m->stages, m->who, describe_entries(m)));
    TSR__TRY(exchange_descriptions(m));
    TSR__TRY(take_descriptions(m));
    TSR__TRY(unite_same_names(m));
    return hand_over_entries(m, out);
}

tsr_status tsr__checkpoint_merge(tsr_comm *stages, const char *who, int count,
                                 const tsr_checkpoint_entry *entries, tsr__checkpoint_merged *out)
{
    merging m = {.stages = stages,
                 .who = who,
                 .rank = tsr_comm_rank(stages),
                 .ranks = tsr_comm_size(stages),
                 .count = count,
                 .entries = entries};
    tsr_status status = merge_stages(&m, out);
    tsr__free(m.sizes);
    tsr__free(m.mine);
    tsr__free(m.all);
    tsr__free(m.list);
    return status;
}

void tsr__checkpoint_merged_finish(tsr__checkpoint_merged *merged)
{
    tsr__free(merged->entries);
    tsr__free(merged->names);
    *merged = (tsr__checkpoint_merged){0};
}
