/* Which parts the ranks see, and which of them make up a checkpoint. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/parts.h"

/* What a rank sees --------------------------------------------------------------------------- */

/* Keeps the error of the first part that cannot be read. Loading reports it only if a part is
 * missing. */
static tsr_status note_problem(const char *path, tsr_status status, tsr__view *view)
{
    if (status == TSR_ERR_NO_MEMORY)
        return status;
    (void)tsr__fail_context(status, "%s", path);
    if (view->problem.text[0] == '\0')
        view->problem = tsr__error_take();
    return TSR_OK;
}

static tsr_status read_part(const char *path, tsr__part *part)
{
    char *header = NULL;
    uint64_t header_bytes, file_bytes;
    TSR__TRY(tsr__part_load_header(path, &header, &header_bytes, &file_bytes));
    tsr_status status = tsr__part_parse(header, header_bytes, file_bytes, part);
    tsr__free(header);
    return status;
}

static tsr_status add_seen(const char *path, bool previous, const tsr__part *part, tsr__view *view)
{
    void *items = view->items;
    TSR__TRY(tsr__grow(&items, &view->capacity, view->count + 1, sizeof *view->items));
    view->items = items;
    char *copy = tsr__strdup(path);
    if (!copy)
        return TSR_ERR_NO_MEMORY;
    view->items[view->count++] =
        (tsr__seen){.id = part->id, .hash = part->hash, .path = copy, .previous = previous};
    return TSR_OK;
}

static tsr_status see_file(const char *folder, const char *file, tsr__part_kind kind,
                           tsr__view *view)
{
    const size_t size = strlen(folder) + strlen(file) + 1;
    char *path = tsr__calloc(size, 1);
    if (!path)
        return TSR_ERR_NO_MEMORY;
    snprintf(path, size, "%s%s", folder, file);
    tsr__part part = {0};
    tsr_status status = read_part(path, &part);
    /* Other programs use such names, too; their files have no identity. */
    if (status == TSR_OK && part.id.id[0])
        status = add_seen(path, kind == TSR__PART_PREVIOUS, &part, view);
    else if (status != TSR_OK && status != TSR_ERR_NOT_FOUND) /* another rank may have removed it */
        status = note_problem(path, status, view);
    else
        status = TSR_OK;
    tsr__part_finish(&part);
    tsr__free(path);
    return status;
}

tsr_status tsr__view_add_folder(const char *folder, const char *stem, tsr__view *view)
{
    DIR *listing = opendir(folder[0] ? folder : ".");
    if (!listing && (errno == ENOENT || errno == ENOTDIR))
        return TSR_OK;
    if (!listing)
        return note_problem(folder, tsr__fail(TSR_ERR_IO, "%s", strerror(errno)), view);
    tsr_status status = TSR_OK;
    for (struct dirent *entry; status == TSR_OK && (entry = readdir(listing)) != NULL;) {
        const tsr__part_kind kind = tsr__part_name_kind(stem, entry->d_name);
        if (kind == TSR__PART_CURRENT || kind == TSR__PART_PREVIOUS)
            status = see_file(folder, entry->d_name, kind, view);
    }
    closedir(listing);
    return status;
}

tsr_status tsr__view_add_file(const char *path, tsr__view *view)
{
    tsr__part part = {0};
    tsr_status status = read_part(path, &part);
    if (status != TSR_OK && status != TSR_ERR_NO_MEMORY)
        status = tsr__fail_context(status, "%s", path);
    if (status == TSR_OK)
        status = add_seen(path, false, &part, view);
    tsr__part_finish(&part);
    return status;
}

void tsr__view_finish(tsr__view *view)
{
    for (size_t i = 0; i < view->count; i++)
        tsr__free(view->items[i].path);
    tsr__free(view->items);
    *view = (tsr__view){0};
}

/* Choosing ----------------------------------------------------------------------------------- */

/* A part that some rank sees. */
typedef struct announced {
    tsr__part_id id;
    uint64_t hash;
    int32_t rank, index; /* the rank that sees the file, and the index of the file in its view */
} announced;

/* The parts that any rank sees, sorted with by_checkpoint(). */
typedef struct announcements {
    announced *items;
    size_t count;
} announcements;

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* Sorts by checkpoint, the newest generation first, then by part. */
static int by_checkpoint(const void *a, const void *b)
{
    const announced *x = a, *y = b;
    int order = compare_u64(y->id.generation, x->id.generation);
    if (order == 0)
        order = strcmp(x->id.id, y->id.id);
    if (order == 0)
        order = x->id.of - y->id.of;
    if (order == 0)
        order = x->id.number - y->id.number;
    if (order == 0)
        order = compare_u64(x->hash, y->hash);
    if (order == 0)
        order = x->rank - y->rank;
    return order != 0 ? order : x->index - y->index;
}

static bool same_checkpoint(const tsr__part_id *a, const tsr__part_id *b)
{
    return a->generation == b->generation && a->of == b->of && strcmp(a->id, b->id) == 0;
}

static tsr_status gather_announcements(const char *who, tsr_comm *comm, const tsr__view *view,
                                       announcements *out)
{
    const size_t ranks = comm ? (size_t)tsr_comm_size(comm) : 1;
    const int rank = comm ? tsr_comm_rank(comm) : 0;
    uint64_t *sizes = tsr__calloc(ranks, sizeof *sizes);
    announced *mine = tsr__calloc(view->count, sizeof *mine);
    tsr_status status = sizes && mine ? TSR_OK : TSR_ERR_NO_MEMORY;
    status = tsr__checkpoint_agree(comm, who, status);
    if (status == TSR_OK) {
        for (size_t i = 0; i < view->count; i++)
            mine[i] = (announced){.id = view->items[i].id,
                                  .hash = view->items[i].hash,
                                  .rank = rank,
                                  .index = (int32_t)i};
        sizes[rank] = view->count * sizeof *mine;
        if (comm)
            status = tsr_comm_all_gather(comm, &sizes[rank], sizes, 1, TSR_I64, NULL);
    }
    uint64_t total = 0;
    for (size_t r = 0; r < ranks && status == TSR_OK; r++)
        total += sizes[r];
    if (status == TSR_OK) {
        out->items = tsr__calloc(total, 1);
        status = tsr__checkpoint_agree(comm, who, out->items ? TSR_OK : TSR_ERR_NO_MEMORY);
        out->count = total / sizeof *mine;
    }
    if (status == TSR_OK && comm)
        status = tsr_comm_all_gather_v(comm, mine, out->items, sizes, TSR_U8, NULL);
    else if (status == TSR_OK && view->count > 0)
        memcpy(out->items, mine, total);
    if (status == TSR_OK && out->count > 0)
        qsort(out->items, out->count, sizeof *out->items, by_checkpoint);
    tsr__free(mine);
    tsr__free(sizes);
    return status;
}

/* Returns the end of the items that belong to the same checkpoint as the one at `start`. Sets
 * *parts to the number of different parts among them. */
static size_t group_end(const announcements *all, size_t start, int *parts)
{
    size_t end = start;
    *parts = 0;
    for (; end < all->count && same_checkpoint(&all->items[start].id, &all->items[end].id); end++)
        if (end == start || all->items[end].id.number != all->items[end - 1].id.number)
            (*parts)++;
    return end;
}

/* Chooses the rank that reads each part of a checkpoint: among those that see the part, the one
 * with the fewest parts so far. */
static tsr_status assign_readers(const char *who, tsr_comm *comm, const announced *group,
                                 size_t count, tsr__chosen *out)
{
    const int ranks = comm ? tsr_comm_size(comm) : 1, rank = comm ? tsr_comm_rank(comm) : 0;
    int *busy = tsr__calloc((size_t)ranks, sizeof *busy);
    out->reader = busy ? tsr__calloc((size_t)group->id.of, sizeof *out->reader) : NULL;
    out->mine = out->reader ? tsr__calloc((size_t)group->id.of, sizeof *out->mine) : NULL;
    if (!out->mine) {
        tsr__free(busy);
        return TSR_ERR_NO_MEMORY;
    }
    out->id = group->id;
    for (int i = 0; i < group->id.of; i++)
        out->reader[i] = out->mine[i] = -1;
    tsr_status status = TSR_OK;
    for (size_t i = 0; i < count && status == TSR_OK;) {
        const int part = group[i].id.number - 1;
        const announced *first = &group[i], *best = first;
        for (; i < count && group[i].id.number == part + 1; i++) {
            if (group[i].hash != first->hash)
                status =
                    tsr__fail(TSR_ERR_INVALID,
                              "%s: part %d of checkpoint %s has two different headers, one on "
                              "rank %d, the other on rank %d",
                              who, part + 1, group->id.id, (int)first->rank, (int)group[i].rank);
            if (busy[group[i].rank] < busy[best->rank])
                best = &group[i];
            if (group[i].rank == rank)
                out->mine[part] = group[i].index;
        }
        out->reader[part] = best->rank;
        busy[best->rank]++;
    }
    tsr__free(busy);
    return status;
}

/* Writes a sentence about the first missing part of the checkpoint whose items start at `start`. */
static void describe_missing(tsr_comm *comm, const char *path, const announcements *all,
                             size_t start, tsr__error *out)
{
    const int ranks = comm ? tsr_comm_size(comm) : 1;
    char asked[64] = "";
    if (ranks > 1)
        snprintf(asked, sizeof asked, " on any of the %d ranks", ranks);
    if (all->count == 0) {
        snprintf(out->text, sizeof out->text, "%s: there is no part of this checkpoint%s", path,
                 asked);
        return;
    }
    const announced *group = &all->items[start];
    int missing = 1;
    for (size_t i = start; i < all->count && same_checkpoint(&group->id, &all->items[i].id); i++)
        if (all->items[i].id.number == missing)
            missing++;
    int length =
        snprintf(out->text, sizeof out->text,
                 "%s: part %d of %d of checkpoint %s, generation %" PRIu64 ", is not there%s", path,
                 missing, group->id.of, group->id.id, group->id.generation, asked);
    for (size_t i = 0; i < all->count && length > 0 && (size_t)length < sizeof out->text; i++) {
        const announced *other = &all->items[i];
        if (other->id.number != missing || same_checkpoint(&other->id, &group->id))
            continue;
        char where[32] = "a file";
        if (ranks > 1)
            snprintf(where, sizeof where, "rank %d", (int)other->rank);
        snprintf(out->text + length, sizeof out->text - (size_t)length,
                 "; %s has part %d of checkpoint %s, generation %" PRIu64, where, missing,
                 other->id.id, other->id.generation);
        return;
    }
}

static tsr_status check_only(const char *who, const char *path, const announcements *all,
                             size_t chosen, size_t next)
{
    int parts;
    for (size_t end;
         next < all->count && all->items[next].id.generation == all->items[chosen].id.generation;
         next = end) {
        end = group_end(all, next, &parts);
        if (parts == all->items[next].id.of)
            return tsr__fail(TSR_ERR_INVALID,
                             "%s: %s: checkpoints %s and %s are both complete and of generation "
                             "%" PRIu64,
                             who, path, all->items[chosen].id.id, all->items[next].id.id,
                             all->items[next].id.generation);
    }
    return TSR_OK;
}

static tsr_status choose_newest(const char *who, tsr_comm *comm, const char *path,
                                const announcements *all, tsr__chosen *out, tsr__error *missing)
{
    int parts = 0;
    missing->text[0] = '\0';
    out->generation = all->count > 0 ? all->items[0].id.generation : 0;
    for (size_t start = 0, end; start < all->count; start = end) {
        end = group_end(all, start, &parts);
        if (parts < all->items[start].id.of)
            continue;
        TSR__TRY(check_only(who, path, all, start, end));
        if (start > 0 && (!comm || tsr_comm_rank(comm) == 0))
            tsr__log(TSR_LOG_WARNING,
                     "%s: %s: generation %" PRIu64
                     " is incomplete; the newest complete one is %" PRIu64,
                     who, path, all->items[0].id.generation, all->items[start].id.generation);
        return assign_readers(who, comm, &all->items[start], end - start, out);
    }
    describe_missing(comm, path, all, 0, missing);
    return all->count > 0 ? assign_readers(who, comm, all->items, group_end(all, 0, &parts), out)
                          : TSR_OK;
}

tsr_status tsr__parts_choose(const char *who, tsr_comm *comm, const char *path,
                             const tsr__view *view, tsr__chosen *out, tsr__error *missing)
{
    announcements all = {0};
    *out = (tsr__chosen){0};
    tsr_status status = gather_announcements(who, comm, view, &all);
    if (status == TSR_OK)
        status =
            tsr__checkpoint_agree(comm, who, choose_newest(who, comm, path, &all, out, missing));
    tsr__free(all.items);
    return status;
}

void tsr__chosen_finish(tsr__chosen *chosen)
{
    tsr__free(chosen->reader);
    tsr__free(chosen->mine);
    *chosen = (tsr__chosen){0};
}
