/* Reads headers of safetensors files. A file starts with a little-endian length of 8 bytes. A JSON
 * object of this length follows, with the dtype, the shape and the place of each tensor. Then
 * follow the weights, without gaps. Source: the format's specification,
 * github.com/huggingface/safetensors. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "shard/formats/file_kind.h"
#include "shard/formats/readers.h"
#include "json/text_check.h"

typedef struct safetensors_reader {
    tsr__file *file;
    tsr__json json;
    tsr__params *params;
    tsr__spans spans;
    uint64_t weights_bytes;
    char key[TSR__JSON_TEXT]; /* the name of a member of a tensor's object */
} safetensors_reader;

static tsr_status read_dtype(tsr__json *json, tsr_shard_param *param)
{
    char name[32];
    tsr__file_dtype dtype;
    size_t dtype_offset = json->at;
    TSR__TRY(tsr__json_string(json, sizeof name, name));
    if (!tsr__dtype_by_name(name, &dtype)) {
        bool clean = tsr__name_problem(name, strlen(name)) == NULL;
        (void)tsr__json_fail(json, dtype_offset, "dtype '%s' is unknown", clean ? name : "?");
        return TSR_ERR_UNSUPPORTED;
    }
    param->dtype = dtype.name;
    return TSR_OK;
}

static tsr_status read_offsets(tsr__json *json, uint64_t offsets[2])
{
    bool more = false;
    size_t start = json->at;
    TSR__TRY(tsr__json_enter(json, '['));
    for (int i = 0; i < 2; i++) {
        TSR__TRY(tsr__json_element(json, &more));
        if (!more)
            return tsr__json_fail(json, start, "data_offsets are two numbers");
        TSR__TRY(tsr__json_integer(json, &offsets[i]));
    }
    TSR__TRY(tsr__json_element(json, &more));
    return more ? tsr__json_fail(json, start, "data_offsets are two numbers") : TSR_OK;
}

/* Reads the object of one tensor, whose name has already been set. Unknown members are skipped. */
static tsr_status read_tensor(safetensors_reader *reader, size_t key_at, tsr_shard_param *param)
{
    static const char *const names[] = {"dtype", "shape", "data_offsets", NULL};
    tsr__json *json = &reader->json;
    uint64_t offsets[2] = {0, 0};
    unsigned seen = 0;
    bool more = false;
    size_t offsets_at = json->at;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        int number = -1;
        TSR__TRY(tsr__json_member(json, reader->key, &more));
        if (!more)
            break;
        if (tsr__json_find(names, reader->key) >= 0)
            TSR__TRY(tsr__json_known(json, names, reader->key, &seen, &number));
        if (number == 2)
            offsets_at = json->at;
        TSR__TRY(number == 0   ? read_dtype(json, param)
                 : number == 1 ? tsr__json_shape(json, param)
                 : number == 2 ? read_offsets(json, offsets)
                               : tsr__json_skip(json));
    }
    for (int i = 0; i < 3; i++)
        if (!(seen & 1u << i))
            return tsr__json_fail(json, key_at, "\"%s\" is missing", names[i]);

    param->offset_bytes = json->base + json->size + offsets[0];
    tsr_status status = tsr__params_add(reader->params, param);
    if (status == TSR_ERR_NO_MEMORY)
        return status;
    if (status != TSR_OK)
        return tsr__json_fail_context(json, key_at, TSR_ERR_INVALID);
    uint64_t size = reader->params->items[reader->params->count - 1].size_bytes;
    if (offsets[1] < offsets[0] || offsets[1] - offsets[0] != size)
        return tsr__json_fail(json, offsets_at,
                              "bytes %" PRIu64 " to %" PRIu64 " do not fit its size of %" PRIu64,
                              offsets[0], offsets[1], size);
    if (offsets[1] > reader->weights_bytes)
        return tsr__json_fail(json, offsets_at,
                              "it ends at byte %" PRIu64 " of the weights, which have "
                              "%" PRIu64,
                              offsets[1], reader->weights_bytes);
    return tsr__spans_add(&reader->spans, reader->params, offsets[0], offsets[1],
                          json->base + key_at);
}

static tsr_status read_header(safetensors_reader *reader)
{
    tsr__json *json = &reader->json;
    char name[TSR__JSON_TEXT];
    bool more = false, metadata = false;
    if (json->size == 0 || json->text[0] != '{')
        return tsr__json_fail(json, 0, "the header does not start with '{'");
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(json, name, &more));
        if (!more)
            break;
        if (strcmp(name, "__metadata__") == 0) {
            if (metadata)
                return tsr__json_fail(json, json->key_at, "\"__metadata__\" comes twice");
            metadata = true;
            TSR__TRY(tsr__json_skip(json));
        } else {
            tsr_shard_param param = {.name = name};
            const char *problem = tsr__name_problem(name, strlen(name));
            if (problem != NULL)
                return tsr__json_fail(json, json->key_at, "a tensor's name %s", problem);
            tsr__subject_set(&json->subject, "tensor", name, 0);
            TSR__TRY(read_tensor(reader, json->key_at, &param));
            tsr__subject_clear(&json->subject);
        }
    }
    TSR__TRY(tsr__json_end(json));
    TSR__TRY(tsr__check_names(json->what, reader->params, &reader->spans));
    return tsr__spans_check(reader->file, reader->params, &reader->spans, true,
                            reader->weights_bytes);
}

tsr_status tsr__read_safetensors(tsr__file *file, tsr__params *params)
{
    uint8_t bytes[8];
    file->what = "safetensors";
    TSR__TRY(tsr__file_kind_expect(file, TSR__FILE_SAFETENSORS));
    TSR__TRY(tsr__file_read(file, 0, 8, "the header's length", bytes));
    uint64_t length = tsr__little_endian(bytes, 8);
    if (length > TSR__MAX_HEADER)
        return tsr__file_fail(file, TSR_ERR_INVALID, 0,
                              "a header of %" PRIu64 " bytes is more than the %" PRIu64 " allowed",
                              length, TSR__MAX_HEADER);
    char *header = NULL;
    TSR__TRY(tsr__file_load(file, 8, length, "the header", &header));
    safetensors_reader *reader = tsr__calloc(1, sizeof *reader);
    tsr_status status = TSR_ERR_NO_MEMORY;
    if (reader != NULL) {
        reader->file = file;
        reader->params = params;
        reader->json = (tsr__json){.text = header, .size = length, .base = 8, .what = file->what};
        reader->weights_bytes = file->size - 8 - length;
        status = read_header(reader);
        tsr__free(reader->spans.items);
    }
    tsr__free(reader);
    tsr__free(header);
    return status;
}
