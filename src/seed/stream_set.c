/* The sorted list of a seed manager's streams. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "seed/seed.h"

/* The size in bytes of an entry of the list. */
#define STREAM_SIZE sizeof(tsr__seed_stream *)

static bool precedes(const tsr__seed_stream *stream, tsr_seed_kind kind, int id)
{
    return stream->kind < kind || (stream->kind == kind && stream->id < id);
}

/* Returns the stream's index in the sorted list, or the index at which it would be inserted. */
static size_t position_of(const tsr__seed_set *set, tsr_seed_kind kind, int id)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (precedes(set->streams[middle], kind, id))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

tsr__seed_stream *tsr__seed_find(const tsr__seed_set *set, tsr_seed_kind kind, int id)
{
    size_t index = position_of(set, kind, id);
    bool found =
        index < set->count && set->streams[index]->kind == kind && set->streams[index]->id == id;
    return found ? set->streams[index] : NULL;
}

tsr_status tsr__seed_add(tsr__seed_set *set, tsr_seed_kind kind, int id, tsr__seed_stream **stream)
{
    *stream = tsr__seed_find(set, kind, id);
    if (*stream != NULL)
        return TSR_OK;
    void *streams = set->streams;
    TSR__TRY(tsr__grow(&streams, &set->capacity, set->count + 1, STREAM_SIZE));
    set->streams = streams;
    tsr__seed_stream *added = tsr__calloc(1, sizeof *added);
    if (added == NULL)
        return TSR_ERR_NO_MEMORY;
    added->kind = kind;
    added->id = id;
    size_t index = position_of(set, kind, id);
    memmove(set->streams + index + 1, set->streams + index, (set->count - index) * STREAM_SIZE);
    set->streams[index] = added;
    set->count++;
    *stream = added;
    return TSR_OK;
}

void tsr__seed_set_finish(tsr__seed_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        tsr__free(set->streams[i]);
    tsr__free(set->streams);
    *set = (tsr__seed_set){0};
}

tsr_status tsr__seed_merge(tsr__seed_set *set, tsr__seed_set *fresh)
{
    void *streams = set->streams;
    size_t old = set->count, added = fresh->count;
    TSR__TRY(tsr__grow(&streams, &set->capacity, old + added, STREAM_SIZE));
    set->streams = streams;
    set->count += added;
    /* Merge from the end of the list, so that no entry is overwritten before it has been moved. */
    for (size_t index = set->count; added > 0; index--) {
        const tsr__seed_stream *last = fresh->streams[added - 1];
        bool from_old = old > 0 && !precedes(set->streams[old - 1], last->kind, last->id);
        set->streams[index - 1] = from_old ? set->streams[--old] : fresh->streams[--added];
    }
    fresh->count = 0; /* `set` now owns the streams */
    tsr__seed_set_finish(fresh);
    return TSR_OK;
}
