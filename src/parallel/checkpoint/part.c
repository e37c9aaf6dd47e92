/* The header of one part. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "parallel/checkpoint/parts.h"
#include "shard/formats/file_kind.h"
#include "shard/formats/header_file.h"
#include "shard/formats/readers.h"
#include "json/json.h"
#include "json/json_write.h"

static const char what[] = "safetensors";

void tsr__part_finish(tsr__part *part)
{
    for (size_t i = 0; part->names && i < part->count; i++)
        tsr__free(part->names[i]);
    tsr__free((void *)part->names);
    tsr__free(part->slices);
    tsr__metadata_finish(&part->metadata);
    *part = (tsr__part){0};
}

/* Stored slices ------------------------------------------------------------------------------ */

/* Returns whether the entry has all elements of its block, which has size `length` along
 * `shard_dim`. */
static bool is_block(const tsr_checkpoint_entry *entry)
{
    const tsr__checkpoint_rows rows = tsr__checkpoint_rows_of(entry);
    return entry->first == 0 && entry->count == rows.outer * rows.row;
}

static bool is_whole(const tsr_checkpoint_entry *entry)
{
    return entry->first == 0 && entry->count == tsr__checkpoint_elements(entry);
}

/* Sets the shape that a slice is stored with. */
static void shape_of(const tsr_checkpoint_entry *entry, int *ndim, int64_t shape[TSR_MAX_DIMS])
{
    *ndim = 1;
    shape[0] = (int64_t)entry->count;
    if (!is_whole(entry) && !is_block(entry))
        return;
    *ndim = entry->ndim;
    memcpy(shape, entry->shape, (size_t)entry->ndim * sizeof *shape);
    if (!is_whole(entry) && entry->shard_dim >= 0)
        shape[entry->shard_dim] = entry->length;
}

void tsr__slice_name_region(const tsr_checkpoint_entry *entry, char text[TSR_CHECKPOINT_SLICE_TEXT])
{
    int length = 0;
    text[0] = '\0';
    if (is_whole(entry))
        return;
    if (entry->shard_dim >= 0 && entry->length < entry->shape[entry->shard_dim]) {
        text[length++] = '[';
        for (int d = 0; d < entry->shard_dim; d++) {
            text[length++] = ':';
            text[length++] = ',';
        }
        length +=
            snprintf(text + length, TSR_CHECKPOINT_SLICE_TEXT - (size_t)length,
                     "%" PRId64 ":%" PRId64 "]", entry->offset, entry->offset + entry->length);
    }
    if (!is_block(entry))
        snprintf(text + length, TSR_CHECKPOINT_SLICE_TEXT - (size_t)length,
                 ".flat[%" PRIu64 ":%" PRIu64 "]", entry->first, entry->first + entry->count);
}

tsr_status tsr__slice_stored(const char *who, const tsr_checkpoint_entry *entry,
                             tsr_checkpoint_entry *out)
{
    char region[TSR_CHECKPOINT_SLICE_TEXT];
    tsr__slice_name_region(entry, region);
    const size_t length = strlen(entry->name) + strlen(region);
    TSR__REQUIRE(length <= TSR_SHARD_MAX_NAME,
                 "%s: the name of a slice of '%s' has %zu bytes, more than the %d allowed", who,
                 entry->name, length, TSR_SHARD_MAX_NAME);
    char *name = tsr__calloc(length + 1, 1);
    if (!name)
        return TSR_ERR_NO_MEMORY;
    snprintf(name, length + 1, "%s%s", entry->name, region);
    *out = (tsr_checkpoint_entry){.name = name,
                                  .dtype = entry->dtype,
                                  .shard_dim = -1,
                                  .count = entry->count,
                                  .tensor = entry->tensor,
                                  .data = entry->data};
    shape_of(entry, &out->ndim, out->shape);
    return TSR_OK;
}

/* Describing --------------------------------------------------------------------------------- */

static void print_slice(tsr__json_writer *json, const tsr_checkpoint_entry *entry,
                        const tsr_checkpoint_entry *stored)
{
    tsr__json_print(json, "{\"tensor\":");
    tsr__json_print_string(json, stored->name);
    tsr__json_print(json, ",\"of\":");
    tsr__json_print_string(json, entry->name);
    tsr__json_print(json, ",\"shape\":[");
    for (int d = 0; d < entry->ndim; d++)
        tsr__json_print(json, "%s%" PRId64, d > 0 ? "," : "", entry->shape[d]);
    const tsr__region region = tsr__region_of(entry);
    tsr__json_print(json,
                    "],\"dim\":%d,\"offset\":%" PRIu64 ",\"length\":%" PRIu64 ",\"first\":%" PRIu64
                    ",\"count\":%" PRIu64 "}",
                    (int)region.dim, region.offset, region.length, region.first, region.count);
}

static void print_part(tsr__json_writer *json, const tsr__part_id *id, int count,
                       const tsr_checkpoint_entry *entries, const tsr_checkpoint_entry *stored)
{
    bool first = true;
    tsr__json_print(json,
                    "{\"checkpoint\":\"%s\",\"generation\":%" PRIu64
                    ",\"part\":%d,\"parts\":%d,\"slices\":[",
                    id->id, id->generation, id->number, id->of);
    for (int i = 0; i < count; i++) {
        if (is_whole(&entries[i]))
            continue;
        tsr__json_print(json, "%s", first ? "" : ",");
        print_slice(json, &entries[i], &stored[i]);
        first = false;
    }
    tsr__json_print(json, "]}");
}

char *tsr__part_describe(const tsr__part_id *id, int count, const tsr_checkpoint_entry *entries,
                         const tsr_checkpoint_entry *stored)
{
    tsr__json_writer json = {0};
    print_part(&json, id, count, entries, stored);
    char *text = tsr__calloc(json.length + 1, 1);
    if (!text)
        return NULL;
    json = (tsr__json_writer){.text = text};
    print_part(&json, id, count, entries, stored);
    return text;
}

/* Reading ------------------------------------------------------------------------------------ */

/* The state of reading the description of a part. */
typedef struct describing {
    tsr__json json;
    tsr__part *part;
    const tsr__params *params;
    const tsr__param_name *names; /* the names of `params`, sorted */
    char id[TSR__PART_ID];
    char key[TSR__JSON_TEXT], tensor[TSR__JSON_TEXT], of[TSR__JSON_TEXT];
} describing;

static int by_name(const void *key, const void *item)
{
    return strcmp(key, ((const tsr__param_name *)item)->name);
}

static bool same_shape(const tsr_shard_param *param, int ndim, const int64_t *shape)
{
    return param->ndim == ndim &&
           (ndim == 0 || memcmp(param->shape, shape, (size_t)ndim * sizeof *shape) == 0);
}

/* Checks the description of a slice, and replaces the slice that take_tensors() has made for its
 * stored tensor. */
static tsr_status take_slice(describing *d, size_t position, const tsr_shard_param *shape,
                             const uint64_t *numbers)
{
    const tsr__param_name *found =
        d->params->count == 0
            ? NULL
            : bsearch(d->tensor, d->names, d->params->count, sizeof *d->names, by_name);
    char text[TSR__NAME_SHORT];
    if (!found)
        return tsr__json_fail(&d->json, position, "the file has no '%s'",
                              tsr__name_short(d->tensor, text));
    const char *problem = tsr__name_problem(d->of, strlen(d->of));
    if (problem)
        return tsr__json_fail(&d->json, position, "the name of a tensor %s", problem);
    tsr__slice *slice = &d->part->slices[found->param];
    if (d->part->names[found->param])
        return tsr__json_fail(&d->json, position, "'%s' comes twice",
                              tsr__name_short(d->tensor, text));
    for (int i = 0; i < 3; i++)
        if (numbers[i] > INT64_MAX)
            return tsr__json_fail(&d->json, position, "%" PRIu64 " is out of range", numbers[i]);
    tsr_checkpoint_entry entry = {.dtype = slice->of.dtype,
                                  .ndim = shape->ndim,
                                  .shard_dim =
                                      numbers[0] < TSR_MAX_DIMS ? (int)numbers[0] : TSR_MAX_DIMS,
                                  .offset = (int64_t)numbers[1],
                                  .length = (int64_t)numbers[2],
                                  .first = numbers[3],
                                  .count = numbers[4]};
    memcpy(entry.shape, shape->shape, sizeof entry.shape);
    entry.name = d->part->names[found->param] = tsr__strdup(d->of);
    if (!entry.name)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr__checkpoint_check_region(TSR__PART_KEY, &entry);
    if (status != TSR_OK)
        return status == TSR_ERR_NO_MEMORY
                   ? status
                   : tsr__json_fail_context(&d->json, position, TSR_ERR_INVALID);
    int ndim;
    int64_t stored[TSR_MAX_DIMS];
    shape_of(&entry, &ndim, stored);
    if (entry.count == 0 || !same_shape(&d->params->items[found->param], ndim, stored))
        return tsr__json_fail(&d->json, position, "'%s' does not have the shape of its slice",
                              tsr__name_short(d->tensor, text));
    slice->of = entry;
    return TSR_OK;
}

static tsr_status read_slice(describing *d)
{
    static const char *const names[] = {"tensor", "of",    "shape", "dim", "offset",
                                        "length", "first", "count", NULL};
    tsr_shard_param shape = {0};
    uint64_t numbers[5] = {0};
    unsigned seen = 0;
    bool more = false;
    const size_t start = d->json.at;
    TSR__TRY(tsr__json_enter(&d->json, '{'));
    for (;;) {
        int member = -1;
        TSR__TRY(tsr__json_member(&d->json, d->key, &more));
        if (!more)
            break;
        TSR__TRY(tsr__json_known(&d->json, names, d->key, &seen, &member));
        TSR__TRY(member == 0   ? tsr__json_string(&d->json, sizeof d->tensor, d->tensor)
                 : member == 1 ? tsr__json_string(&d->json, sizeof d->of, d->of)
                 : member == 2 ? tsr__json_shape(&d->json, &shape)
                               : tsr__json_integer(&d->json, &numbers[member - 3]));
    }
    TSR__TRY(tsr__json_required(&d->json, start, names, seen));
    return take_slice(d, start, &shape, numbers);
}

static tsr_status read_slices(describing *d)
{
    bool more = false;
    TSR__TRY(tsr__json_enter(&d->json, '['));
    for (;;) {
        TSR__TRY(tsr__json_element(&d->json, &more));
        if (!more)
            return TSR_OK;
        TSR__TRY(read_slice(d));
    }
}

static tsr_status check_id(describing *d, const uint64_t *numbers)
{
    tsr__part_id *id = &d->part->id;
    if (strspn(d->id, "0123456789abcdef") != TSR__PART_ID - 1)
        return tsr__json_fail(&d->json, 0,
                              "the identity of its checkpoint is not 32 hexadecimal "
                              "digits");
    if (numbers[2] < 1 || numbers[2] > TSR__PARTS_MAX || numbers[1] < 1 || numbers[1] > numbers[2])
        return tsr__json_fail(&d->json, 0, "it is part %" PRIu64 " of %" PRIu64, numbers[1],
                              numbers[2]);
    if (numbers[0] < 1 || numbers[0] >= INT64_MAX)
        return tsr__json_fail(&d->json, 0, "a generation of %" PRIu64, numbers[0]);
    memcpy(id->id, d->id, TSR__PART_ID);
    id->generation = numbers[0];
    id->number = (int)numbers[1];
    id->of = (int)numbers[2];
    return TSR_OK;
}

static tsr_status read_description(describing *d)
{
    static const char *const names[] = {"checkpoint", "generation", "part",
                                        "parts",      "slices",     NULL};
    uint64_t numbers[3] = {0};
    unsigned seen = 0;
    bool more = false;
    TSR__TRY(tsr__json_enter(&d->json, '{'));
    for (;;) {
        int member = -1;
        TSR__TRY(tsr__json_member(&d->json, d->key, &more));
        if (!more)
            break;
        TSR__TRY(tsr__json_known(&d->json, names, d->key, &seen, &member));
        TSR__TRY(member == 0   ? tsr__json_string(&d->json, sizeof d->id, d->id)
                 : member == 4 ? read_slices(d)
                               : tsr__json_integer(&d->json, &numbers[member - 1]));
    }
    TSR__TRY(tsr__json_end(&d->json));
    TSR__TRY(tsr__json_required(&d->json, 0, names, seen));
    return check_id(d, numbers);
}

static bool find_dtype(const char *name, tsr_dtype *out)
{
    for (int dtype = TSR_F32; dtype <= TSR_F64; dtype++) {
        if (strcmp(name, tsr__checkpoint_dtype((tsr_dtype)dtype)) == 0) {
            *out = (tsr_dtype)dtype;
            return true;
        }
    }
    return false;
}

/* Makes one slice for each tensor of the file, as if the file had all of the tensor. take_slice()
 * replaces the slices that are not full tensors. */
static tsr_status take_tensors(const tsr__params *params, tsr__part *part)
{
    char text[TSR__NAME_SHORT];
    part->names = tsr__calloc(params->count, sizeof *part->names);
    part->slices = part->names ? tsr__calloc(params->count, sizeof *part->slices) : NULL;
    if (!part->slices)
        return TSR_ERR_NO_MEMORY;
    part->count = params->count;
    for (size_t i = 0; i < params->count; i++) {
        const tsr_shard_param *param = &params->items[i];
        tsr_checkpoint_entry *entry = &part->slices[i].of;
        if (!find_dtype(param->dtype, &entry->dtype))
            return tsr__fail(TSR_ERR_UNSUPPORTED, "%s: tensor '%s' is %s", what,
                             tsr__name_short(param->name, text), param->dtype);
        entry->ndim = param->ndim;
        entry->shard_dim = -1;
        memcpy(entry->shape, param->shape, sizeof entry->shape);
        entry->count = param->count;
        part->slices[i].at_bytes = param->offset_bytes;
        part->slices[i].size_bytes = param->size_bytes;
    }
    return TSR_OK;
}

/* Sets the names of those slices that are full tensors: such a tensor has the same name in the part
 * and in the checkpoint. */
static tsr_status name_whole(const tsr__params *params, tsr__part *part)
{
    for (size_t i = 0; i < params->count; i++) {
        if (part->names[i])
            continue;
        part->slices[i].of.name = part->names[i] = tsr__strdup(params->items[i].name);
        if (!part->names[i])
            return TSR_ERR_NO_MEMORY;
        TSR__TRY(tsr__checkpoint_check_region(what, &part->slices[i].of));
    }
    return TSR_OK;
}

static tsr_status read_part_description(const char *text, const tsr__params *params,
                                        tsr__part *part)
{
    describing *d = tsr__calloc(1, sizeof *d);
    tsr__param_name *names = NULL;
    tsr_status status = d ? tsr__params_sort(params, &names) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        d->json = (tsr__json){.text = text, .size = strlen(text), .what = TSR__PART_KEY};
        d->part = part;
        d->params = params;
        d->names = names;
        status = read_description(d);
    }
    tsr__free(names);
    tsr__free(d);
    return status;
}

static tsr_status read_sums(const char *header, uint64_t header_bytes, tsr__part *part)
{
    uint32_t *sums = NULL;
    TSR__TRY(tsr__checksums_read(header, header_bytes, part->count, &sums));
    part->has_checksums = sums != NULL;
    for (size_t i = 0; sums && i < part->count; i++)
        part->slices[i].sum = sums[i];
    tsr__free(sums);
    return TSR_OK;
}

tsr_status tsr__part_parse(const char *header, uint64_t header_bytes, uint64_t file_bytes,
                           tsr__part *out)
{
    tsr__params params = {0};
    tsr__file file = {.size = file_bytes,
                      .data = (const uint8_t *)header,
                      .data_size = header_bytes,
                      .descriptor = -1};
    *out = (tsr__part){.id = {.number = 1, .of = 1},
                       .hash = tsr__hash(TSR__HASH_START, header, header_bytes),
                       .header_bytes = header_bytes,
                       .size_bytes = file_bytes};
    tsr_status status = tsr__read_safetensors(&file, &params);
    if (status == TSR_OK)
        status = take_tensors(&params, out);
    if (status == TSR_OK)
        status = read_sums(header, header_bytes, out);
    if (status == TSR_OK)
        status = tsr__metadata_read(header, header_bytes, NULL, &out->metadata);
    const char *text = status == TSR_OK ? tsr__metadata_find(&out->metadata, TSR__PART_KEY) : NULL;
    if (text)
        status = read_part_description(text, &params, out);
    if (status == TSR_OK)
        status = name_whole(&params, out);
    tsr__params_finish(&params);
    return status;
}

tsr_status tsr__part_load_header(const char *path, char **out, uint64_t *header_bytes,
                                 uint64_t *file_bytes)
{
    tsr__file file;
    uint8_t bytes[8];
    TSR__TRY(tsr__file_open(path, &file));
    file.what = what;
    tsr_status status = tsr__file_kind_expect(&file, TSR__FILE_SAFETENSORS);
    if (status == TSR_OK)
        status = tsr__file_read(&file, 0, sizeof bytes, "the header's length", bytes);
    const uint64_t size = status == TSR_OK ? tsr__little_endian(bytes, 8) : 0;
    if (size > TSR__MAX_HEADER)
        status =
            tsr__file_fail(&file, TSR_ERR_INVALID, 0,
                           "a header of %" PRIu64 " bytes is more than the %" PRIu64 " allowed",
                           size, TSR__MAX_HEADER);
    if (status == TSR_OK)
        status = tsr__file_load(&file, 0, 8 + size, "the header", out);
    if (status == TSR_OK) {
        *header_bytes = 8 + size;
        *file_bytes = file.size;
    }
    tsr__file_close(&file);
    return status;
}
