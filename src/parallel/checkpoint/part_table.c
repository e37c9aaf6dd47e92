/* The tensors of a checkpoint in parts, and which slices make up each of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/parts.h"
#include "shard/formats/header_file.h"
#include "tensor/check.h"

void tsr__parts_finish(tsr__parts *parts)
{
    for (int i = 0; i < parts->count; i++) {
        if (parts->parts)
            tsr__part_finish(&parts->parts[i]);
        if (parts->paths)
            tsr__free(parts->paths[i]);
    }
    tsr__free(parts->parts);
    tsr__free((void *)parts->paths);
    tsr__free(parts->readers);
    tsr__free(parts->slices);
    tsr__free(parts->tensors);
    tsr__params_finish(&parts->params);
    *parts = (tsr__parts){0};
}

/* Headers ------------------------------------------------------------------------------------ */

/* The rank that reads a part broadcasts this before the header. */
typedef struct preamble {
    uint64_t header_bytes, file_bytes;
} preamble;

/* On the rank that reads a part, loads its header, and checks that it has not changed since it was
 * found. */
static tsr_status load_header(const char *who, const tsr__seen *seen, char **header,
                              preamble *sizes)
{
    tsr__part part = {0};
    tsr_status status =
        tsr__part_load_header(seen->path, header, &sizes->header_bytes, &sizes->file_bytes);
    if (status == TSR_OK)
        status = tsr__part_parse(*header, sizes->header_bytes, sizes->file_bytes, &part);
    if (status == TSR_OK && part.hash != seen->hash)
        status = tsr__fail(TSR_ERR_IO, "it has changed since it was found");
    tsr__part_finish(&part);
    if (status == TSR_OK || status == TSR_ERR_NO_MEMORY)
        return status;
    return tsr__fail_context(status, "%s: %s", who, seen->path);
}

/* Gives all ranks the header of a part, and parses it. */
static tsr_status read_part(const char *who, tsr_comm *comm, int reader, const tsr__seen *mine,
                            tsr__part *out)
{
    const int rank = comm ? tsr_comm_rank(comm) : 0;
    char *header = NULL;
    preamble sizes = {0};
    tsr_status status = rank == reader ? load_header(who, mine, &header, &sizes) : TSR_OK;
    status = tsr__checkpoint_agree(comm, who, status);
    if (status == TSR_OK && comm)
        status = tsr_comm_broadcast(comm, &sizes, sizeof sizes, TSR_U8, reader, NULL);
    if (status == TSR_OK) {
        if (rank != reader)
            header = tsr__calloc(sizes.header_bytes + 1, 1);
        status = tsr__checkpoint_agree(comm, who, header ? TSR_OK : TSR_ERR_NO_MEMORY);
    }
    if (status == TSR_OK && comm)
        status = tsr_comm_broadcast(comm, header, sizes.header_bytes, TSR_U8, reader, NULL);
    if (status == TSR_OK)
        status = tsr__checkpoint_agree(
            comm, who, tsr__part_parse(header, sizes.header_bytes, sizes.file_bytes, out));
    tsr__free(header);
    return status;
}

/* The table ---------------------------------------------------------------------------------- */

static int by_tensor(const void *a, const void *b)
{
    const tsr__slice *x = a, *y = b;
    const int order = strcmp(x->of.name, y->of.name);
    return order != 0 ? order : x->part - y->part;
}

static tsr_status check_same(const char *who, const tsr__slice *a, const tsr__slice *b)
{
    const tsr_checkpoint_entry *x = &a->of, *y = &b->of;
    const bool same = x->dtype == y->dtype && x->ndim == y->ndim &&
                      memcmp(x->shape, y->shape, sizeof x->shape) == 0;
    TSR__REQUIRE(same, "%s: '%s' is %s %s in part %d, and %s %s in part %d", who, x->name,
                 tsr__checkpoint_dtype(x->dtype), TSR__SHAPE(x->ndim, x->shape), a->part + 1,
                 tsr__checkpoint_dtype(y->dtype), TSR__SHAPE(y->ndim, y->shape), b->part + 1);
    return TSR_OK;
}

static tsr_status add_tensor(const tsr_checkpoint_entry *of, size_t first, tsr__parts *parts)
{
    tsr_shard_param param = {
        .name = of->name, .ndim = of->ndim, .dtype = tsr__checkpoint_dtype(of->dtype)};
    memcpy(param.shape, of->shape, sizeof param.shape);
    parts->tensors[parts->tensor_count++] = (tsr__sliced){.of = of, .first = first};
    return tsr__params_add(&parts->params, &param);
}

static tsr_status make_table(const char *who, tsr__parts *parts)
{
    for (int i = 0; i < parts->count; i++)
        parts->slice_count += parts->parts[i].count;
    parts->slices = tsr__calloc(parts->slice_count, sizeof *parts->slices);
    parts->tensors = parts->slices ? tsr__calloc(parts->slice_count, sizeof *parts->tensors) : NULL;
    if (!parts->tensors)
        return TSR_ERR_NO_MEMORY;
    size_t listed = 0;
    for (int i = 0; i < parts->count; i++) {
        for (size_t j = 0; j < parts->parts[i].count; j++) {
            parts->slices[listed] = parts->parts[i].slices[j];
            parts->slices[listed++].part = i;
        }
    }
    if (listed > 0)
        qsort(parts->slices, listed, sizeof *parts->slices, by_tensor);
    for (size_t i = 0; i < listed; i++) {
        const tsr__slice *slice = &parts->slices[i];
        const bool is_new = i == 0 || strcmp(slice[-1].of.name, slice->of.name) != 0;
        TSR__TRY(is_new ? add_tensor(&slice->of, i, parts) : check_same(who, &slice[-1], slice));
        parts->tensors[parts->tensor_count - 1].count++;
    }
    return TSR_OK;
}

static tsr_status make_parts(const tsr__view *view, const tsr__chosen *chosen, tsr__parts *out)
{
    const size_t count = (size_t)chosen->id.of;
    out->parts = tsr__calloc(count, sizeof *out->parts);
    out->paths = tsr__calloc(count, sizeof *out->paths);
    out->readers = tsr__calloc(count, sizeof *out->readers);
    out->count = chosen->id.of;
    if (!out->parts || !out->paths || !out->readers)
        return TSR_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        out->readers[i] = chosen->reader[i];
        if (chosen->mine[i] < 0)
            continue;
        out->paths[i] = tsr__strdup(view->items[chosen->mine[i]].path);
        if (!out->paths[i])
            return TSR_ERR_NO_MEMORY;
    }
    return TSR_OK;
}

tsr_status tsr__parts_read(const char *who, tsr_comm *comm, const tsr__view *view,
                           const tsr__chosen *chosen, tsr__parts *out)
{
    tsr__parts parts = {0};
    tsr_status status = tsr__checkpoint_agree(comm, who, make_parts(view, chosen, &parts));
    for (int i = 0; i < parts.count && status == TSR_OK; i++)
        if (chosen->reader[i] >= 0)
            status = read_part(who, comm, chosen->reader[i],
                               chosen->mine[i] >= 0 ? &view->items[chosen->mine[i]] : NULL,
                               &parts.parts[i]);
    if (status == TSR_OK)
        status = tsr__checkpoint_agree(comm, who, make_table(who, &parts));
    if (status == TSR_OK)
        *out = parts;
    else
        tsr__parts_finish(&parts);
    return status;
}

/* Covering ----------------------------------------------------------------------------------- */

tsr_status tsr__parts_check_cover(const char *who, const tsr__parts *parts)
{
    const tsr__cover cover = {.who = who, .owner = "part", .unit = "slice"};
    size_t most = 0;
    for (size_t i = 0; i < parts->tensor_count; i++)
        most = most > parts->tensors[i].count ? most : parts->tensors[i].count;
    tsr__owned *list = tsr__calloc(most, sizeof *list);
    tsr_status status = list ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (size_t i = 0; i < parts->tensor_count && status == TSR_OK; i++) {
        const tsr__sliced *tensor = &parts->tensors[i];
        int count = 0;
        bool mine;
        for (size_t j = 0; j < tensor->count; j++) {
            const tsr__slice *slice = &parts->slices[tensor->first + j];
            if (slice->of.count > 0)
                list[count++] = (tsr__owned){tsr__region_of(&slice->of), slice->part + 1};
        }
        status = tsr__cover_check(&cover, tensor->of, list, count, 0, &mine);
    }
    tsr__free(list);
    return status;
}

/* Opening ------------------------------------------------------------------------------------ */

static tsr_status view_checkpoint(const char *who, const char *path, tsr__view *view)
{
    tsr__part_place place = {0};
    TSR__TRY(tsr__part_place_init(who, path, &place));
    tsr_status status = tsr__view_add_folder(place.folder, place.stem, view);
    tsr__part_place_finish(&place);
    return status;
}

tsr_status tsr__parts_explain(const char *path, tsr_status status)
{
    if (status != TSR_ERR_NOT_FOUND)
        return status;
    const tsr__error problem = tsr__error_take();
    tsr__view view = {0};
    const tsr_status looked = view_checkpoint("checkpoint", path, &view);
    if (looked == TSR_ERR_NO_MEMORY)
        status = looked;
    else if (looked == TSR_OK && view.count > 0)
        status = tsr__fail(status,
                           "%s; this checkpoint was written in parts, one of which is %s: read it "
                           "with `.parts = true`",
                           problem.text, view.items[0].path);
    else
        tsr__error_put_back(&problem);
    tsr__view_finish(&view);
    return status;
}

/* Fails because a part is missing. If a rank could not read some part, the error says why, because
 * that may be the missing one. */
static tsr_status fail_missing(const char *who, tsr_comm *comm, const tsr__view *view,
                               const tsr__error *missing)
{
    tsr_status status = TSR_OK;
    if (view->problem.text[0])
        status = tsr__fail(TSR_ERR_INVALID, "%s: %s", who, view->problem.text);
    TSR__TRY(tsr__checkpoint_agree(comm, who, status));
    return tsr__fail(TSR_ERR_NOT_FOUND, "%s: %s", who, missing->text);
}

tsr_status tsr__parts_open(const char *who, const char *path, tsr_comm *comm, tsr__parts *out)
{
    tsr__view view = {0};
    tsr__chosen chosen = {0};
    tsr__error missing;
    tsr__parts parts = {0};
    tsr_status status = tsr__checkpoint_agree(comm, who, view_checkpoint(who, path, &view));
    if (status == TSR_OK)
        status = tsr__parts_choose(who, comm, path, &view, &chosen, &missing);
    if (status == TSR_OK && missing.text[0])
        status = fail_missing(who, comm, &view, &missing);
    if (status == TSR_OK)
        status = tsr__parts_read(who, comm, &view, &chosen, &parts);
    if (status == TSR_OK)
        status = tsr__checkpoint_agree(comm, who, tsr__parts_check_cover(who, &parts));
    if (status == TSR_OK)
        *out = parts;
    else
        tsr__parts_finish(&parts);
    tsr__chosen_finish(&chosen);
    tsr__view_finish(&view);
    return status;
}
