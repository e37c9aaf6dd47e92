/* Loads a checkpoint in parts. One rank reads each part, once, and sends the other ranks the
 * elements that they need.
 *
 * All ranks go through the tensors in the same order, and load each in steps. In a step, each rank
 * reads the next chunk of its slices, and an all-to-all gives each rank the elements that it needs
 * of all chunks. Every rank computes which elements these are, so messages need no description.
 * After an error a rank still joins the all-to-all of each remaining step, but no longer reads. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/hash.h"
#include "parallel/checkpoint/parts.h"

static const char who[] = "checkpoint_load";

/* The most bytes of the chunks of all ranks in one step, unless LEAST_CHUNK_BYTES needs more. */
#define STEP_BYTES (UINT64_C(64) << 20)
#define LEAST_CHUNK_BYTES (UINT64_C(64) << 10)
#define GROUP 128 /* tensors whose wanted regions are exchanged in one call */

typedef struct loader {
    tsr_comm *comm;
    int rank, ranks;
    tsr_stream *stream;
    const tsr__parts *parts;
    const tsr_checkpoint_entry **wanted; /* [tensors]: this rank's entry; NULL: none */
    tsr__region *mine, *all;             /* mine[GROUP], all[ranks][GROUP] */
    tsr__part_reader reader;
    uint64_t chunk_bytes;              /* the size of the largest chunk */
    struct source *sources;            /* [ranks] */
    struct span *needed;               /* [ranks]: what each rank wants of the current tensor */
    uint8_t *send, *recv;              /* [ranks][chunk_bytes] */
    uint64_t *send_bytes, *recv_bytes; /* [ranks] */
    tsr_status status;                 /* the first error of this rank */
    tsr__error error;                  /* the text of that error */
} loader;

/* Keeps the first error. */
static void keep_status(loader *l, tsr_status status)
{
    if (status == TSR_OK || l->status != TSR_OK)
        return;
    l->status = status;
    l->error = tsr__error_take();
}

/* Elements that a chunk of a slice and a wanted region have in common ------------------------ */

/* `count` elements of a block of a tensor, from element `first` of the block on. `block` has the
 * rows of that block. */
typedef struct span {
    tsr__checkpoint_rows block;
    uint64_t first, count;
} span;

static span span_of(const tsr_checkpoint_entry *tensor, const tsr__region *region)
{
    tsr_checkpoint_entry entry = *tensor;
    entry.shard_dim = entry.ndim == 0 ? -1 : (int)region->dim;
    entry.offset = (int64_t)region->offset;
    entry.length = (int64_t)region->length;
    return (span){tsr__checkpoint_rows_of(&entry), region->first, region->count};
}

/* How the common elements are copied from `from` to `to`. Each of the two may be packed, which
 * means that it has only the common elements. If one is NULL, the elements are counted, but not
 * copied. */
typedef struct copying {
    const uint8_t *from;
    uint8_t *to;
    bool from_packed, to_packed;
    uint64_t width;
} copying;

static void copy_run(const copying *c, uint64_t from, uint64_t to, uint64_t packed, uint64_t count)
{
    if (!c->from || !c->to)
        return;
    memcpy(c->to + (c->to_packed ? packed : to) * c->width,
           c->from + (c->from_packed ? packed : from) * c->width, count * c->width);
}

/* Copies what `want` has of elements element … element + count − 1 of the full tensor, which start
 * at element `from` of the chunk. `packed` is the number of common elements before these; returns
 * it with the new ones added. */
static uint64_t share_run(const span *want, uint64_t element, uint64_t count, uint64_t from,
                          uint64_t packed, const copying *c)
{
    const tsr__checkpoint_rows *block = &want->block;
    const uint64_t last = want->first + want->count;
    while (count > 0) {
        const uint64_t row = element / block->whole_row, column = element % block->whole_row;
        uint64_t step;
        if (column < block->start)
            step = block->start - column;
        else if (column >= block->start + block->row)
            step = block->whole_row - column;
        else {
            step = tsr__min_u64(count, block->start + block->row - column);
            const uint64_t to = row * block->row + column - block->start;
            const uint64_t low = tsr__max_u64(to, want->first);
            const uint64_t high = tsr__min_u64(to + step, last);
            if (low < high) {
                copy_run(c, from + (low - to), low - want->first, packed, high - low);
                packed += high - low;
            }
        }
        step = tsr__min_u64(step, count);
        element += step;
        from += step;
        count -= step;
    }
    return packed;
}

/* Copies what `want` has of elements first … first + count − 1 of a slice. Returns the number of
 * these elements. */
static uint64_t share_elements(const span *slice, uint64_t first, uint64_t count, const span *want,
                               const copying *c)
{
    const tsr__checkpoint_rows *block = &slice->block;
    const bool whole = block->row == block->whole_row;
    uint64_t packed = 0, from = 0;
    if (want->count == 0)
        return 0;
    while (from < count) {
        const uint64_t element = slice->first + first + from;
        const uint64_t row = element / block->row, column = element % block->row;
        const uint64_t run = whole ? count - from : tsr__min_u64(count - from, block->row - column);
        packed =
            share_run(want, row * block->whole_row + block->start + column, run, from, packed, c);
        from += run;
    }
    return packed;
}

/* Steps -------------------------------------------------------------------------------------- */

/* A tensor that is being loaded. */
typedef struct loading {
    const tsr__sliced *tensor;
    uint64_t width;  /* the size of an element in bytes */
    uint8_t *memory; /* memory for this rank's elements; NULL if there are none or an allocation
                        failed */
} loading;

/* How far one rank has read its slices, and the chunk that it reads in this step. */
typedef struct source {
    size_t slice;         /* the slice to go on with, counted from the tensor's first one */
    uint64_t next;        /* the element of that slice to go on with */
    const tsr__slice *of; /* the slice of the chunk; NULL: the rank has read all its slices */
    span whole;
    uint64_t first, count;
    uint32_t state; /* the state of the slice's checksum */
} source;

static void next_chunk(const loader *l, const loading *t, int rank, source *s)
{
    const uint64_t most = l->chunk_bytes / t->width;
    s->of = NULL;
    for (; s->slice < t->tensor->count; s->slice++, s->next = 0) {
        const tsr__slice *slice = &l->parts->slices[t->tensor->first + s->slice];
        if (l->parts->readers[slice->part] != rank || s->next >= slice->of.count)
            continue;
        const tsr__region region = tsr__region_of(&slice->of);
        s->of = slice;
        s->whole = span_of(t->tensor->of, &region);
        s->first = s->next;
        s->count = tsr__min_u64(most, slice->of.count - s->first);
        s->next += s->count;
        return;
    }
}

static void read_chunk(loader *l, const loading *t)
{
    source *s = &l->sources[l->rank];
    if (!s->of || l->status != TSR_OK)
        return;
    if (s->first == 0)
        s->state = 0;
    keep_status(l, tsr__part_reader_chunk(&l->reader, s->of, s->first * t->width,
                                          s->count * t->width, &s->state));
}

/* Puts what each other rank needs of this rank's chunk into messages, and copies what this rank
 * needs of it itself. */
static void pack_elements(loader *l, const loading *t)
{
    const source *s = &l->sources[l->rank];
    uint64_t sent = 0;
    for (int to = 0; to < l->ranks; to++) {
        copying c = {.from = l->reader.chunk,
                     .to = to == l->rank ? t->memory : l->send + sent,
                     .to_packed = to != l->rank,
                     .width = t->width};
        uint64_t common = 0;
        if (s->of)
            common = share_elements(&s->whole, s->first, s->count, &l->needed[to], &c);
        l->send_bytes[to] = to == l->rank ? 0 : common * t->width;
        sent += l->send_bytes[to];
    }
}

/* Computes how much this rank gets from each other rank. */
static void expect_elements(loader *l, const loading *t)
{
    const copying count_only = {.width = t->width};
    for (int from = 0; from < l->ranks; from++) {
        const source *s = &l->sources[from];
        l->recv_bytes[from] = 0;
        if (s->of && from != l->rank)
            l->recv_bytes[from] = t->width * share_elements(&s->whole, s->first, s->count,
                                                            &l->needed[l->rank], &count_only);
    }
}

static void unpack_elements(loader *l, const loading *t)
{
    const uint8_t *received = l->recv;
    for (int from = 0; from < l->ranks; from++) {
        const source *s = &l->sources[from];
        if (l->recv_bytes[from] == 0)
            continue;
        const copying c = {
            .from = received, .from_packed = true, .to = t->memory, .width = t->width};
        share_elements(&s->whole, s->first, s->count, &l->needed[l->rank], &c);
        received += l->recv_bytes[from];
    }
}

static tsr_status exchange_elements(loader *l)
{
    if (l->ranks == 1)
        return TSR_OK;
    const uint64_t timeout_ns = tsr_comm_set_timeout(l->comm, TSR__CHECKPOINT_PATIENCE_NS);
    const tsr_status status = tsr_comm_all_to_all_v(l->comm, l->send, l->send_bytes, l->recv,
                                                    l->recv_bytes, TSR_U8, NULL);
    tsr_comm_set_timeout(l->comm, timeout_ns);
    return status;
}

/* Loads the slices of a tensor. Returns an error of the communicator only; keep_status() stores
 * other errors. */
static tsr_status load_slices(loader *l, const loading *t)
{
    memset(l->sources, 0, (size_t)l->ranks * sizeof *l->sources);
    for (;;) {
        bool any = false;
        for (int r = 0; r < l->ranks; r++) {
            next_chunk(l, t, r, &l->sources[r]);
            any = any || l->sources[r].of;
        }
        if (!any)
            return TSR_OK;
        read_chunk(l, t);
        pack_elements(l, t);
        expect_elements(l, t);
        TSR__TRY(exchange_elements(l));
        unpack_elements(l, t);
    }
}

/* Tensors ------------------------------------------------------------------------------------ */

/* A tsr__checkpoint_move_fn that reads from host memory, `user`, instead of a file. */
static tsr_status copy_to_upload(void *user, uint64_t at_bytes, uint64_t size, void *data)
{
    memcpy(data, (const uint8_t *)user + at_bytes, size);
    return TSR_OK;
}

static tsr_status upload_tensor(loader *l, const tsr_checkpoint_entry *entry, uint8_t *memory)
{
    /* `flat` has one dimension, so that the transfer reads `memory` from its start to its end. */
    tsr_checkpoint_entry flat = *entry;
    flat.ndim = 1;
    flat.shape[0] = (int64_t)entry->count;
    flat.shard_dim = -1;
    flat.first = 0;
    return tsr__checkpoint_transfer(l->stream, &flat, 0, false, copy_to_upload, memory);
}

static tsr_status load_tensor(loader *l, size_t number, int index, int group)
{
    const tsr__sliced *tensor = &l->parts->tensors[number];
    const tsr_checkpoint_entry *entry = l->wanted[number];
    loading t = {.tensor = tensor,
                 .width = tsr__checkpoint_width(tensor->of->dtype),
                 .memory = entry ? entry->data : NULL};
    uint8_t *staging = NULL;
    bool any = false;
    for (int r = 0; r < l->ranks; r++) {
        l->needed[r] = span_of(tensor->of, &l->all[(size_t)r * (size_t)group + (size_t)index]);
        any = any || l->needed[r].count > 0;
    }
    if (!any)
        return TSR_OK;
    if (entry && entry->tensor && entry->count > 0) {
        t.memory = staging = tsr__calloc(entry->count, t.width);
        keep_status(l, staging ? TSR_OK : TSR_ERR_NO_MEMORY);
    }
    tsr_status status = load_slices(l, &t);
    if (status == TSR_OK && staging && l->status == TSR_OK)
        keep_status(l, upload_tensor(l, entry, staging));
    tsr__free(staging);
    return status;
}

static tsr_status load_tensors(loader *l)
{
    const size_t count = l->parts->tensor_count;
    for (size_t first = 0; first < count; first += GROUP) {
        const size_t group = count - first < GROUP ? count - first : GROUP;
        for (size_t i = 0; i < group; i++)
            l->mine[i] =
                l->wanted[first + i] ? tsr__region_of(l->wanted[first + i]) : (tsr__region){0};
        const uint64_t bytes = group * sizeof *l->mine;
        if (l->comm)
            TSR__TRY(tsr_comm_all_gather(l->comm, l->mine, l->all, bytes, TSR_U8, NULL));
        else
            memcpy(l->all, l->mine, bytes);
        for (size_t i = 0; i < group; i++)
            TSR__TRY(load_tensor(l, first + i, (int)i, (int)group));
    }
    return TSR_OK;
}

/* Loading ------------------------------------------------------------------------------------ */

/* Finds the tensor of each entry. */
static tsr_status match_entries(loader *l, const char *path, int count,
                                const tsr_checkpoint_entry *entries, bool strict)
{
    const tsr__params *params = &l->parts->params;
    const tsr_shard_param **found = tsr__calloc((size_t)count, sizeof *found);
    l->wanted = tsr__calloc(l->parts->tensor_count, sizeof *l->wanted);
    tsr_status status = found && l->wanted ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__checkpoint_match(who, path, params, count, entries, strict, found);
    for (int i = 0; i < count && status == TSR_OK; i++)
        l->wanted[found[i] - params->items] = &entries[i];
    tsr__free((void *)found);
    return status;
}

static tsr_status prepare_load(loader *l, const char *path, int count,
                               const tsr_checkpoint_entry *entries, bool strict)
{
    TSR__TRY(match_entries(l, path, count, entries, strict));
    const size_t ranks = (size_t)l->ranks;
    l->chunk_bytes = tsr__min_u64(TSR__PART_CHUNK_BYTES,
                                  tsr__max_u64(LEAST_CHUNK_BYTES, STEP_BYTES / (uint64_t)ranks));
    l->mine = tsr__calloc(GROUP, sizeof *l->mine);
    l->all = tsr__calloc(ranks * GROUP, sizeof *l->all);
    l->sources = tsr__calloc(ranks, sizeof *l->sources);
    l->needed = tsr__calloc(ranks, sizeof *l->needed);
    l->send = tsr__calloc(ranks, l->chunk_bytes);
    l->recv = tsr__calloc(ranks, l->chunk_bytes);
    l->send_bytes = tsr__calloc(ranks, sizeof *l->send_bytes);
    l->recv_bytes = tsr__calloc(ranks, sizeof *l->recv_bytes);
    if (!l->mine || !l->all || !l->sources || !l->needed || !l->send || !l->recv ||
        !l->send_bytes || !l->recv_bytes)
        return TSR_ERR_NO_MEMORY;
    return tsr__part_reader_init(who, l->parts, &l->reader);
}

static void loader_finish(loader *l)
{
    tsr__part_reader_finish(&l->reader);
    tsr__free((void *)l->wanted);
    tsr__free(l->mine);
    tsr__free(l->all);
    tsr__free(l->sources);
    tsr__free(l->needed);
    tsr__free(l->send);
    tsr__free(l->recv);
    tsr__free(l->send_bytes);
    tsr__free(l->recv_bytes);
}

static tsr_status load_entries(loader *l)
{
    TSR__TRY(load_tensors(l));
    if (l->status != TSR_OK)
        tsr__error_put_back(&l->error);
    return tsr__checkpoint_agree(l->comm, who, l->status);
}

tsr_status tsr__parts_load(const char *path, tsr_comm *comm, tsr_stream *stream, int count,
                           const tsr_checkpoint_entry *entries, const tsr_checkpoint_params *params)
{
    tsr__parts parts = {0};
    loader l = {.comm = comm,
                .rank = comm ? tsr_comm_rank(comm) : 0,
                .ranks = comm ? tsr_comm_size(comm) : 1,
                .stream = stream,
                .parts = &parts};
    TSR__TRY(tsr__parts_open(who, path, comm, &parts));
    if (params->skip_checksums)
        for (int i = 0; i < parts.count; i++)
            parts.parts[i].has_checksums = false;
    tsr_status status =
        tsr__checkpoint_agree(comm, who, prepare_load(&l, path, count, entries, params->strict));
    if (status == TSR_OK)
        status = load_entries(&l);
    loader_finish(&l);
    tsr__parts_finish(&parts);
    return status;
}
