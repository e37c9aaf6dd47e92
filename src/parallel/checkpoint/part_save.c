/* Saves a checkpoint in parts. parts.h explains why this never damages the previous checkpoint. */
#define _DEFAULT_SOURCE /* for getrandom */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "parallel/checkpoint/output.h"
#include "parallel/checkpoint/parts.h"
#include "platform/paths.h"
#include "json/json_write.h"

static const char who[] = "checkpoint_save";
static const char previous_ending[] = ".previous", partial_ending[] = ".partial";

typedef struct saver {
    const char *path;
    tsr_comm *comm;
    int rank;
    bool checksums;
    tsr__part_place place;
    tsr__part_id id;
    tsr__checkpoint_output file, index;
    bool has_index; /* this rank writes the index of its host */
    char *previous; /* the path to which the old part is renamed */
    bool set_aside; /* the old part has been renamed to `previous` */
    bool committed; /* the new part has its final name */
    /* [count]: the entries of which this rank writes a slice, and the slices as they are stored */
    tsr_checkpoint_entry *entries, *stored;
    int count;
    tsr__checkpoint_layout layout;
    tsr__checksum checksum; /* the checksum of the current slice */
} saver;

static void saver_finish(saver *s)
{
    for (int i = 0; s->stored && i < s->count; i++)
        tsr__free((void *)s->stored[i].name);
    tsr__free(s->stored);
    tsr__free(s->entries);
    tsr__free(s->previous);
    tsr__checkpoint_layout_finish(&s->layout);
    tsr__checkpoint_output_finish(&s->index);
    tsr__checkpoint_output_finish(&s->file);
    tsr__part_place_finish(&s->place);
}

/* The previous checkpoint -------------------------------------------------------------------- */

static tsr_status give_back_name(const saver *s, const tsr__seen *seen)
{
    const size_t length = strlen(seen->path) - (sizeof previous_ending - 1);
    char *path = tsr__calloc(length + 1, 1);
    if (!path)
        return TSR_ERR_NO_MEMORY;
    memcpy(path, seen->path, length);
    tsr_status status = TSR_OK;
    /* ENOENT: a rank that shares the folder has already renamed the file. */
    if (tsr__checkpoint_output_faulty("restore") ||
        (rename(seen->path, path) != 0 && errno != ENOENT))
        status = tsr__checkpoint_output_fail(who, errno, "restore", path);
    tsr__free(path);
    return status == TSR_OK ? tsr__checkpoint_output_sync_folder(&s->file) : status;
}

/* If an earlier save was interrupted, gives the parts of the newest complete checkpoint their names
 * back. */
static tsr_status restore_names(const saver *s, const tsr__view *view, const tsr__chosen *chosen)
{
    for (size_t i = 0; i < view->count; i++) {
        const tsr__seen *seen = &view->items[i];
        if (seen->previous && strcmp(seen->id.id, chosen->id.id) == 0 &&
            seen->id.generation == chosen->id.generation)
            TSR__TRY(give_back_name(s, seen));
    }
    return TSR_OK;
}

static tsr_status draw_id(saver *s)
{
    uint8_t bytes[(TSR__PART_ID - 1) / 2];
    if (tsr__checkpoint_output_faulty("getrandom") ||
        getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return tsr__fail(TSR_ERR_IO, "%s: getrandom failed: %s", who, strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(s->id.id + 2 * i, 3, "%02x", bytes[i]);
    return TSR_OK;
}

/* Finds the previous checkpoint, restores the names of its parts, and chooses the identity and
 * generation of the new one. */
static tsr_status begin_save(saver *s)
{
    tsr__view view = {0};
    tsr__chosen chosen = {0};
    tsr__error missing;
    tsr_status status = tsr__view_add_folder(s->place.folder, s->place.stem, &view);
    status = tsr__checkpoint_agree(s->comm, who, status);
    if (status == TSR_OK)
        status = tsr__parts_choose(who, s->comm, s->path, &view, &chosen, &missing);
    if (status == TSR_OK && !missing.text[0])
        status = tsr__checkpoint_agree(s->comm, who, restore_names(s, &view, &chosen));
    if (status == TSR_OK)
        status = tsr__checkpoint_agree(s->comm, who, s->rank == 0 ? draw_id(s) : TSR_OK);
    if (status == TSR_OK && s->comm)
        status = tsr_comm_broadcast(s->comm, s->id.id, sizeof s->id.id, TSR_U8, 0, NULL);
    s->id.generation = chosen.generation + 1;
    tsr__chosen_finish(&chosen);
    tsr__view_finish(&view);
    return status;
}

static void remove_file(const char *folder, const char *name)
{
    const size_t size = strlen(folder) + strlen(name) + 1;
    char *path = tsr__calloc(size, 1);
    if (!path)
        return;
    snprintf(path, size, "%s%s", folder, name);
    unlink(path);
    tsr__free(path);
}

/* Removes the parts of older checkpoints and the temporary files of interrupted saves from this
 * rank's folder. The new checkpoint must be complete on all ranks. Errors are ignored, because
 * files that remain do no harm. */
static void remove_old_files(const saver *s)
{
    const tsr__error before = tsr__error_take();
    tsr__view view = {0};
    if (tsr__view_add_folder(s->place.folder, s->place.stem, &view) == TSR_OK)
        for (size_t i = 0; i < view.count; i++)
            if (view.items[i].id.generation < s->id.generation)
                unlink(view.items[i].path);
    tsr__view_finish(&view);
    DIR *listing = opendir(s->place.folder[0] ? s->place.folder : ".");
    for (struct dirent *entry; listing && (entry = readdir(listing)) != NULL;)
        if (tsr__part_name_kind(s->place.stem, entry->d_name) == TSR__PART_PARTIAL)
            remove_file(s->place.folder, entry->d_name);
    if (listing)
        closedir(listing);
    tsr__error_put_back(&before);
}

/* Preparing ---------------------------------------------------------------------------------- */

static bool is_first_of_host(const tsr_comm *comm, int rank)
{
    for (int r = 0; comm && r < rank; r++)
        if (tsr_comm_host(comm, r) == tsr_comm_host(comm, rank))
            return false;
    return true;
}

static tsr_status name_outputs(saver *s)
{
    TSR__TRY(tsr__part_place_init(who, s->path, &s->place));
    s->id.number = s->rank + 1;
    s->id.of = s->comm ? tsr_comm_size(s->comm) : 1;
    s->has_index = is_first_of_host(s->comm, s->rank);
    char ending[64];
    snprintf(ending, sizeof ending, "-%05d-of-%05d%s", s->id.number, s->id.of, partial_ending);
    char *path = tsr__part_path(&s->place, s->id.number, s->id.of, "");
    char *index = path ? tsr__part_index_path(&s->place) : NULL;
    s->previous = index ? tsr__part_path(&s->place, s->id.number, s->id.of, previous_ending) : NULL;
    tsr_status status = s->previous ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__checkpoint_output_init(&s->file, who, path, partial_ending);
    if (status == TSR_OK)
        status = tsr__checkpoint_output_init(&s->index, who, index, ending);
    tsr__free(index);
    tsr__free(path);
    return status;
}

/* Checks that no tensor has the name of a slice, such as "x[0:4]". */
static tsr_status check_names(const saver *s)
{
    int *order = NULL;
    TSR__TRY(tsr__checkpoint_sort(s->count, s->stored, &order));
    const char *twice = NULL;
    for (int i = 1; i < s->count && !twice; i++)
        if (strcmp(s->stored[order[i - 1]].name, s->stored[order[i]].name) == 0)
            twice = s->stored[order[i]].name;
    tsr__free(order);
    TSR__REQUIRE(!twice, "%s: a tensor and a slice of another have the name '%s'", who, twice);
    return TSR_OK;
}

/* Makes the lists of what this rank writes. `mine` is the division of the entries among ranks;
 * tensors without elements, which no rank owns, are written by rank 0. */
static tsr_status take_entries(saver *s, int count, const tsr_checkpoint_entry *entries,
                               const bool *mine)
{
    s->entries = tsr__calloc((size_t)count, sizeof *s->entries);
    s->stored = s->entries ? tsr__calloc((size_t)count, sizeof *s->stored) : NULL;
    if (!s->stored)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        if (!mine[i] && (s->rank != 0 || tsr__checkpoint_elements(&entries[i]) > 0))
            continue;
        TSR__TRY(tsr__slice_stored(who, &entries[i], &s->stored[s->count]));
        s->entries[s->count++] = entries[i];
    }
    return check_names(s);
}

/* Determines the layout of this rank's part. */
static tsr_status lay_out(saver *s, const char *const *metadata)
{
    size_t given = 0;
    while (metadata && metadata[given])
        given++;
    const char **pairs = tsr__calloc(given + 3, sizeof *pairs);
    char *part = tsr__part_describe(&s->id, s->count, s->entries, s->stored);
    tsr_status status = pairs && part ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        for (size_t i = 0; i < given; i++)
            pairs[i] = metadata[i];
        pairs[given] = TSR__PART_KEY;
        pairs[given + 1] = part;
        status = tsr__checkpoint_lay_out(who, s->count, s->stored, pairs, s->checksums, &s->layout);
    }
    tsr__free(part);
    tsr__free((void *)pairs);
    return status;
}

static uint64_t hash_metadata(const char *const *metadata, bool checksums)
{
    uint64_t hash = tsr__hash(TSR__HASH_START, &checksums, sizeof checksums);
    for (size_t i = 0; metadata && metadata[i]; i++)
        hash = tsr__hash(hash, metadata[i], strlen(metadata[i]) + 1);
    return hash;
}

static tsr_status prepare_save(saver *s, int count, const tsr_checkpoint_entry *entries,
                               const char *const *metadata)
{
    bool *mine = tsr__calloc((size_t)count, sizeof *mine);
    tsr_status status = mine ? name_outputs(s) : TSR_ERR_NO_MEMORY;
    status = tsr__checkpoint_agree(s->comm, who, status);
    if (status == TSR_OK)
        status = tsr__checkpoint_same_entries(s->comm, who, count, entries);
    if (status == TSR_OK)
        status = tsr__checkpoint_same(s->comm, who, "the metadata are",
                                      hash_metadata(metadata, s->checksums));
    if (status == TSR_OK)
        status = tsr__checkpoint_divide(s->comm, who, count, entries, mine);
    if (status == TSR_OK)
        status = begin_save(s);
    if (status == TSR_OK) {
        status = take_entries(s, count, entries, mine);
        if (status == TSR_OK)
            status = lay_out(s, metadata);
        status = tsr__checkpoint_agree(s->comm, who, status);
    }
    tsr__free(mine);
    return status;
}

/* The index ---------------------------------------------------------------------------------- */

static void print_names(tsr__json_writer *json, const saver *s)
{
    const char *slash = tsr__path_last_separator(s->file.path);
    for (int i = 0; i < s->count; i++) {
        tsr__json_print(json, ",\n    ");
        tsr__json_print_string(json, s->stored[i].name);
        tsr__json_print(json, ": ");
        tsr__json_print_string(json, slash ? slash + 1 : s->file.path);
    }
}

/* Collects the lines of the index for the tensors of all ranks. *out is their text, which the
 * caller must free. */
static tsr_status gather_names(const saver *s, char **out)
{
    const size_t ranks = (size_t)s->id.of;
    tsr__json_writer json = {0};
    print_names(&json, s);
    uint64_t *sizes = tsr__calloc(ranks, sizeof *sizes), total = 0;
    char *mine = tsr__calloc(json.length + 1, 1), *all = NULL;
    tsr_status status =
        tsr__checkpoint_agree(s->comm, who, sizes && mine ? TSR_OK : TSR_ERR_NO_MEMORY);
    if (status == TSR_OK) {
        sizes[s->rank] = json.length;
        json = (tsr__json_writer){.text = mine};
        print_names(&json, s);
        if (s->comm)
            status = tsr_comm_all_gather(s->comm, &sizes[s->rank], sizes, 1, TSR_I64, NULL);
    }
    if (status == TSR_OK) {
        for (size_t r = 0; r < ranks; r++)
            total += sizes[r];
        all = tsr__calloc(total + 1, 1);
        status = tsr__checkpoint_agree(s->comm, who, all ? TSR_OK : TSR_ERR_NO_MEMORY);
    }
    if (status == TSR_OK && s->comm)
        status = tsr_comm_all_gather_v(s->comm, mine, all, sizes, TSR_U8, NULL);
    else if (status == TSR_OK)
        memcpy(all, mine, total);
    if (status == TSR_OK)
        *out = all;
    else
        tsr__free(all);
    tsr__free(mine);
    tsr__free(sizes);
    return status;
}

static tsr_status write_index(saver *s, uint64_t total_bytes, const char *names)
{
    char head[256];
    static const char tail[] = "\n  }\n}\n";
    const int size = snprintf(head, sizeof head,
                              "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64
                              ",\n    \"tessera.checkpoint\": \"%s\",\n    \"tessera.generation\": "
                              "%" PRIu64 ",\n    \"tessera.parts\": %d\n  },\n  \"weight_map\": {",
                              total_bytes, s->id.id, s->id.generation, s->id.of);
    /* Each name begins with a comma, which the first one must not have. */
    names += names[0] == ',';
    const uint64_t length = strlen(names), head_bytes = (uint64_t)size;
    TSR__TRY(tsr__checkpoint_output_create(&s->index, head_bytes + length + sizeof tail - 1));
    TSR__TRY(tsr__checkpoint_output_write(&s->index, head, head_bytes, 0));
    TSR__TRY(tsr__checkpoint_output_write(&s->index, names, length, head_bytes));
    TSR__TRY(tsr__checkpoint_output_write(&s->index, tail, sizeof tail - 1, head_bytes + length));
    return tsr__checkpoint_output_sync(&s->index);
}

/* Writing ------------------------------------------------------------------------------------ */

static tsr_status write_bytes(void *user, uint64_t at_bytes, uint64_t size, void *data)
{
    saver *s = user;
    if (s->checksums)
        tsr__checksum_add(&s->checksum, at_bytes, size, data);
    return tsr__checkpoint_output_write(&s->file, data, size, at_bytes);
}

static tsr_status write_part(saver *s, tsr_stream *stream)
{
    uint32_t *states = tsr__calloc((size_t)s->count, sizeof *states);
    tsr_status status =
        states ? tsr__checkpoint_output_create(&s->file, s->layout.size_bytes) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status =
            tsr__checkpoint_output_write(&s->file, s->layout.header, s->layout.header_bytes, 0);
    for (int i = 0; i < s->count && status == TSR_OK; i++) {
        s->checksum = (tsr__checksum){.at_bytes = s->layout.at_bytes[i],
                                      .size_bytes = s->stored[i].count *
                                                    tsr__checkpoint_width(s->stored[i].dtype)};
        status = tsr__checkpoint_transfer(stream, &s->stored[i], s->layout.at_bytes[i], true,
                                          write_bytes, s);
        states[i] = tsr__checksum_state(&s->checksum);
    }
    if (status == TSR_OK && s->checksums)
        status = tsr__checksums_put(&s->file, s->count, s->stored, &s->layout, states);
    if (status == TSR_OK)
        status = tsr__checkpoint_output_sync(&s->file);
    tsr__free(states);
    return status;
}

/* Committing --------------------------------------------------------------------------------- */

/* Renames the old part to `previous`, and gives the new one its final name. */
static tsr_status commit_part(saver *s)
{
    s->set_aside =
        !tsr__checkpoint_output_faulty("set aside") && rename(s->file.path, s->previous) == 0;
    if (!s->set_aside && errno != ENOENT)
        return tsr__checkpoint_output_fail(who, errno, "rename", s->file.path);
    TSR__TRY(tsr__checkpoint_output_sync_folder(&s->file));
    tsr_status status = tsr__checkpoint_output_commit(&s->file);
    s->committed = !s->file.made;
    return status;
}

/* Undoes commit_part() after an error of any rank. If the communicator has failed, it is not known
 * whether the other ranks have committed; both parts then stay, and loading chooses. */
static void undo_commit(const saver *s)
{
    if (s->comm && tsr_comm_status(s->comm) != TSR_OK)
        return;
    if (s->set_aside)
        (void)rename(s->previous, s->file.path);
    else if (s->committed)
        unlink(s->file.path);
}

static tsr_status save_own_part(saver *s, tsr_stream *stream, uint64_t total_bytes)
{
    char *names = NULL;
    TSR__TRY(gather_names(s, &names));
    tsr_status status = write_part(s, stream);
    if (status == TSR_OK && s->has_index)
        status = write_index(s, total_bytes, names);
    tsr__free(names);
    TSR__TRY(tsr__checkpoint_agree(s->comm, who, status));
    status = tsr__checkpoint_agree(s->comm, who, commit_part(s));
    if (status != TSR_OK) {
        const tsr__error before = tsr__error_take();
        undo_commit(s);
        tsr__error_put_back(&before);
        return status;
    }
    status = s->has_index ? tsr__checkpoint_output_commit(&s->index) : TSR_OK;
    TSR__TRY(tsr__checkpoint_agree(s->comm, who, status));
    remove_old_files(s);
    return TSR_OK;
}

tsr_status tsr__parts_save(const char *path, tsr_comm *comm, tsr_stream *stream, int count,
                           const tsr_checkpoint_entry *entries, const char *const *metadata,
                           bool checksums)
{
    saver s = {.path = path,
               .comm = comm,
               .rank = comm ? tsr_comm_rank(comm) : 0,
               .checksums = checksums,
               .file.descriptor = -1,
               .index.descriptor = -1};
    uint64_t total_bytes = 0;
    for (int i = 0; i < count; i++)
        total_bytes +=
            tsr__checkpoint_elements(&entries[i]) * tsr__checkpoint_width(entries[i].dtype);
    tsr_status status = prepare_save(&s, count, entries, metadata);
    if (status == TSR_OK)
        status = save_own_part(&s, stream, total_bytes);
    saver_finish(&s);
    return status;
}
