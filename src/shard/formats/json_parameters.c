/* Reads parameters from JSON: a file that contains a list of them, and the entries of plans. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "shard/formats/readers.h"
#include "json/text_check.h"

tsr_status tsr__json_shape(tsr__json *json, tsr_shard_param *param)
{
    bool more = false;
    size_t start = json->at;
    TSR__TRY(tsr__json_enter(json, '['));
    for (;;) {
        uint64_t size = 0;
        TSR__TRY(tsr__json_element(json, &more));
        if (!more)
            return TSR_OK;
        if (param->ndim == TSR_SHARD_MAX_DIMS)
            return tsr__json_fail(json, start, "its shape has more than %d dimensions",
                                  TSR_SHARD_MAX_DIMS);
        size_t offset = json->at;
        TSR__TRY(tsr__json_integer(json, &size));
        if (size > INT64_MAX)
            return tsr__json_fail(json, offset, "a dimension of %" PRIu64, size);
        param->shape[param->ndim++] = (int64_t)size;
    }
}

tsr_status tsr__json_param(tsr__json *json, tsr__param_text *text, uint64_t number,
                           tsr_shard_param *param, size_t *shards)
{
    static const char *const names[] = {"name",          "shape",  "dtype", "layer",
                                        "always_gather", "shards", NULL};
    static const char *const list_names[] = {"name",  "shape",         "dtype",
                                             "layer", "always_gather", NULL};
    enum { NAME, SHAPE, DTYPE, LAYER, ALWAYS_GATHER, SHARDS };
    tsr_shard_param read = {.name = text->name, .dtype = text->dtype};
    unsigned seen = 0;
    bool more = false;
    size_t start = json->at;
    tsr__subject_set(&json->subject, "parameter", NULL, number);
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        int member = -1;
        TSR__TRY(tsr__json_member(json, text->key, &more));
        if (!more)
            break;
        TSR__TRY(
            tsr__json_known(json, shards != NULL ? names : list_names, text->key, &seen, &member));
        switch (member) {
        case NAME:
            TSR__TRY(tsr__json_string(json, sizeof text->name, text->name));
            tsr__subject_set(&json->subject, "parameter", text->name, number);
            break;
        case SHAPE:
            TSR__TRY(tsr__json_shape(json, &read));
            break;
        case DTYPE:
            TSR__TRY(tsr__json_string(json, sizeof text->dtype, text->dtype));
            break;
        case LAYER:
            TSR__TRY(tsr__json_string(json, sizeof text->layer, text->layer));
            read.layer = text->layer;
            break;
        case ALWAYS_GATHER:
            TSR__TRY(tsr__json_bool(json, &read.always_gather));
            break;
        default:
            *shards = json->at;
            TSR__TRY(tsr__json_skip(json));
        }
    }
    for (int i = NAME; i <= DTYPE; i++)
        if (!(seen & 1u << i))
            return tsr__json_fail(json, start, "\"%s\" is missing", names[i]);
    *param = read;
    return TSR_OK;
}

static tsr_status read_json_list(tsr__json *json, tsr__param_text *text, tsr__params *params)
{
    tsr__spans spans = {0}; /* only header_at of each span is used, for error texts */
    bool more = false;
    tsr_status status = tsr__json_enter(json, '[');
    while (status == TSR_OK) {
        tsr_shard_param param;
        status = tsr__json_element(json, &more);
        if (status != TSR_OK || !more)
            break;
        size_t start = json->at;
        status = tsr__json_param(json, text, params->count, &param, NULL);
        if (status != TSR_OK)
            break;
        status = tsr__params_add(params, &param);
        if (status != TSR_OK && status != TSR_ERR_NO_MEMORY)
            status = tsr__json_fail_context(json, start, TSR_ERR_INVALID);
        tsr__subject_clear(&json->subject);
        if (status == TSR_OK)
            status = tsr__spans_add(&spans, params, 0, 0, json->base + start);
    }
    if (status == TSR_OK)
        status = tsr__check_names(json->what, params, &spans);
    tsr__free(spans.items);
    return status;
}

/* Reads a document of one of the forms {"params": […]}, {"weight_map": …} and […]. The last one is
 * only the list. */
static tsr_status read_document(tsr__json *json, tsr__param_text *text, tsr__params *params,
                                bool *is_index)
{
    static const char *const names[] = {"params", NULL};
    unsigned seen = 0;
    bool more = false, index = false;
    if (tsr__json_peek(json) == '[') {
        TSR__TRY(read_json_list(json, text, params));
        return tsr__json_end(json);
    }
    size_t start = json->at;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        int member = -1;
        TSR__TRY(tsr__json_member(json, text->key, &more));
        if (!more)
            break;
        if (strcmp(text->key, "weight_map") == 0)
            index = true;
        if (index || strcmp(text->key, "metadata") == 0) {
            TSR__TRY(tsr__json_skip(json));
            continue;
        }
        TSR__TRY(tsr__json_known(json, names, text->key, &seen, &member));
        TSR__TRY(read_json_list(json, text, params));
    }
    if (!index && seen == 0)
        return tsr__json_fail(json, start, "it has neither \"params\" nor a \"weight_map\"");
    if (index && seen != 0)
        return tsr__json_fail(json, start, "it has both \"params\" and a \"weight_map\"");
    *is_index = index;
    return tsr__json_end(json);
}

tsr_status tsr__read_json(tsr__file *file, tsr__params *params, bool *is_index)
{
    char *document = NULL;
    file->what = "json";
    if (file->size > TSR__MAX_HEADER)
        return tsr__file_fail(file, TSR_ERR_INVALID, 0,
                              "%" PRIu64 " bytes are more than the %" PRIu64 " allowed", file->size,
                              TSR__MAX_HEADER);
    TSR__TRY(tsr__file_load(file, 0, file->size, "the list", &document));
    tsr__param_text *text = tsr__calloc(1, sizeof *text);
    tsr_status status = TSR_ERR_NO_MEMORY;
    if (text != NULL) {
        tsr__json json = {.text = document, .size = file->size, .what = file->what};
        status = read_document(&json, text, params, is_index);
    }
    tsr__free(text);
    tsr__free(document);
    return status;
}
