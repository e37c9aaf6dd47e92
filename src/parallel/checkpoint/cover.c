/* Which elements of a tensor a rank or a part of a checkpoint has, and whether all of them together
 * make up the tensor. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/checkpoint/checkpoint.h"

tsr__region tsr__region_of(const tsr_checkpoint_entry *entry)
{
    uint64_t size;
    tsr__region mine = {.dim = entry->shard_dim < 0 ? 0 : (uint64_t)entry->shard_dim,
                        .first = entry->first,
                        .count = entry->count};
    tsr__checkpoint_along(entry, &size, &mine.offset, &mine.length);
    return mine;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_place(const void *a, const void *b)
{
    const tsr__owned *x = a, *y = b;
    int order = compare_u64(x->of.offset, y->of.offset);
    if (order == 0)
        order = compare_u64(x->of.length, y->of.length);
    if (order == 0)
        order = compare_u64(x->of.first, y->of.first);
    if (order == 0)
        order = compare_u64(x->of.count, y->of.count);
    return order != 0 ? order : x->owner - y->owner;
}

static bool same_block(const tsr__owned *a, const tsr__owned *b)
{
    return a->of.offset == b->of.offset && a->of.length == b->of.length;
}

static tsr_status fail_other_dim(const tsr__cover *cover, const tsr_checkpoint_entry *entry,
                                 const tsr__owned *a, const tsr__owned *b)
{
    return tsr__fail(TSR_ERR_INVALID, "%s: '%s': %s %d has a %s of dim %d, %s %d one of dim %d",
                     cover->who, entry->name, cover->owner, a->owner, cover->unit, (int)a->of.dim,
                     cover->owner, b->owner, (int)b->of.dim);
}

static tsr_status fail_gap(const tsr__cover *cover, const tsr_checkpoint_entry *entry,
                           const char *where, uint64_t from, uint64_t to)
{
    return tsr__fail(TSR_ERR_INVALID, "%s: '%s': no %s has elements %" PRIu64 " to %" PRIu64 "%s",
                     cover->who, entry->name, cover->owner, from, to - 1, where);
}

static tsr_status fail_twice(const tsr__cover *cover, const tsr_checkpoint_entry *entry,
                             const tsr__owned *a, const tsr__owned *b)
{
    return tsr__fail(TSR_ERR_INVALID, "%s: '%s': the %ss of %s %d and %s %d overlap%s", cover->who,
                     entry->name, cover->unit, cover->owner, a->owner, cover->owner, b->owner,
                     cover->doubles ? ", and are not the same" : "");
}

/* Checks that regions cover the full tensor. They are sorted, and none is empty. Along the divided
 * dimension, each block must start where the previous one ends. Within a block, each range must
 * start where the previous one ends. */
static tsr_status check_cover(const tsr__cover *cover, const tsr_checkpoint_entry *entry,
                              const tsr__owned *list, int count)
{
    const tsr__checkpoint_rows shape = tsr__checkpoint_rows_of(entry);
    char where[64];
    uint64_t size, unused, along = 0;
    tsr__checkpoint_along(entry, &size, &unused, &unused);
    if (tsr__checkpoint_elements(entry) == 0)
        return TSR_OK;
    const uint64_t inner = shape.whole_row / size;
    snprintf(where, sizeof where, " along dim %d", entry->shard_dim < 0 ? 0 : entry->shard_dim);
    for (int i = 0; i < count;) {
        const tsr__region *block = &list[i].of;
        if (block->offset > along)
            return fail_gap(cover, entry, where, along, block->offset);
        if (block->offset < along)
            return fail_twice(cover, entry, &list[i - 1], &list[i]);
        const uint64_t elements = shape.outer * block->length * inner;
        uint64_t covered = 0;
        int first = i;
        for (; i < count && same_block(&list[first], &list[i]); i++) {
            if (list[i].of.first > covered)
                return fail_gap(cover, entry, " of a part", covered, list[i].of.first);
            if (list[i].of.first < covered)
                return fail_twice(cover, entry, &list[i - 1], &list[i]);
            covered += list[i].of.count;
        }
        if (covered < elements)
            return fail_gap(cover, entry, " of a part", covered, elements);
        along += block->length;
    }
    return along < size ? fail_gap(cover, entry, where, along, size) : TSR_OK;
}

tsr_status tsr__cover_check(const tsr__cover *cover, const tsr_checkpoint_entry *entry,
                            tsr__owned *list, int count, int self, bool *mine)
{
    int kept = 0;
    bool own = false;
    if (count > 0)
        qsort(list, (size_t)count, sizeof *list, by_place);
    for (int i = 1; i < count; i++)
        if (list[i].of.dim != list[0].of.dim)
            return fail_other_dim(cover, entry, &list[0], &list[i]);
    for (int i = 0; i < count; i++) {
        /* Equal regions are sorted by owner, so the one of the lowest owner comes first and is
         * kept. */
        if (cover->doubles && kept > 0 &&
            memcmp(&list[kept - 1].of, &list[i].of, sizeof(tsr__region)) == 0)
            continue;
        own = own || list[i].owner == self;
        list[kept++] = list[i];
    }
    *mine = own;
    /* If this rank has no elements, its shard_dim may differ from that of the ranks that have
     * some. */
    tsr_checkpoint_entry along = *entry;
    if (kept > 0 && along.shard_dim != (int)list[0].of.dim) {
        along.shard_dim = (int)list[0].of.dim;
        along.offset = along.length = 0;
    }
    return check_cover(cover, &along, list, kept);
}
