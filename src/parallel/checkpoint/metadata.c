/* Reads the metadata of a safetensors file, which are pairs of a key and a text. */
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/checkpoint.h"
#include "shard/formats/file.h"
#include "shard/formats/list.h"
#include "json/json.h"

/* Which pairs to keep, and the key that is being read. */
typedef struct search {
    const char *wanted; /* the only key to keep; NULL: keep all */
    char key[TSR__JSON_TEXT];
    tsr__metadata *out;
} search;

/* Keeps a text of any length. Allocates as many bytes as its JSON form has. This is enough, because
 * an escape sequence is longer than its character, and the quotes leave room for the terminating
 * zero. */
static tsr_status keep_pair(tsr__json *json, search *s)
{
    const size_t start = json->at;
    TSR__TRY(tsr__json_skip(json));
    const size_t most = json->at - start;
    json->at = start;
    void *texts = (void *)s->out->texts;
    TSR__TRY(tsr__grow(&texts, &s->out->capacity, 2 * s->out->count + 2, sizeof *s->out->texts));
    s->out->texts = texts;
    char **pair = s->out->texts + 2 * s->out->count;
    pair[0] = tsr__strdup(s->key);
    pair[1] = tsr__calloc(most, 1);
    s->out->count++;
    return pair[0] && pair[1] ? tsr__json_string(json, most, pair[1]) : TSR_ERR_NO_MEMORY;
}

static tsr_status read_pairs(tsr__json *json, search *s)
{
    bool more = false;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(json, s->key, &more));
        if (!more)
            return TSR_OK;
        if (!s->wanted || strcmp(s->key, s->wanted) == 0)
            TSR__TRY(keep_pair(json, s));
        else
            TSR__TRY(tsr__json_skip(json));
    }
}

static tsr_status read_header(tsr__json *json, search *s)
{
    bool more = false;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(json, s->key, &more));
        if (!more)
            return TSR_OK;
        if (strcmp(s->key, "__metadata__") == 0)
            TSR__TRY(read_pairs(json, s));
        else
            TSR__TRY(tsr__json_skip(json));
    }
}

tsr_status tsr__metadata_read(const char *header, uint64_t header_bytes, const char *wanted,
                              tsr__metadata *out)
{
    search *s = tsr__calloc(1, sizeof *s);
    if (!s)
        return TSR_ERR_NO_MEMORY;
    s->wanted = wanted;
    s->out = out;
    tsr__json json = {
        .text = header + 8, .size = header_bytes - 8, .base = 8, .what = "safetensors"};
    tsr_status status = read_header(&json, s);
    tsr__free(s);
    return status;
}

const char *tsr__metadata_find(const tsr__metadata *metadata, const char *key)
{
    for (size_t i = metadata->count; i-- > 0;)
        if (strcmp(metadata->texts[2 * i], key) == 0)
            return metadata->texts[2 * i + 1];
    return NULL;
}

void tsr__metadata_finish(tsr__metadata *metadata)
{
    for (size_t i = 0; i < 2 * metadata->count; i++)
        tsr__free(metadata->texts[i]);
    tsr__free((void *)metadata->texts);
    *metadata = (tsr__metadata){0};
}

tsr_status tsr__metadata_give(const char *who, const char *path, const char *key, const char *found,
                              size_t size, char *text)
{
    if (!found)
        return tsr__fail(TSR_ERR_NOT_FOUND, "%s: %s: there is no '%s'", who, path, key);
    TSR__REQUIRE(strlen(found) < size, "%s: %s: '%s' needs %zu bytes, not %zu", who, path, key,
                 strlen(found) + 1, size);
    memcpy(text, found, strlen(found) + 1);
    return TSR_OK;
}

/* Checks the complete header first, and then parses it again to find the key. */
static tsr_status look(tsr__file *file, const char *key, tsr__metadata *out)
{
    tsr__params params = {0};
    uint8_t bytes[8];
    char *header = NULL;
    tsr_status status = tsr__read_safetensors(file, &params);
    const uint64_t count = params.count;
    tsr__params_finish(&params);
    if (status == TSR_OK)
        status = tsr__file_read(file, 0, sizeof bytes, "the header's length", bytes);
    if (status != TSR_OK)
        return status;
    const uint64_t size = tsr__little_endian(bytes, 8);
    TSR__TRY(tsr__file_load(file, 0, 8 + size, "the header", &header));
    uint32_t *checksums = NULL;
    status = tsr__checksums_read(header, 8 + size, count, &checksums);
    tsr__free(checksums);
    if (status == TSR_OK)
        status = tsr__metadata_read(header, 8 + size, key, out);
    tsr__free(header);
    return status;
}

tsr_status tsr_checkpoint_metadata(const char *path, const char *key, size_t size, char *text)
{
    static const char who[] = "checkpoint_metadata";
    TSR__REQUIRE(path && key && text, "%s: %s is NULL", who, !path ? "path" : key ? "text" : "key");
    tsr__metadata metadata = {0};
    tsr__file file;
    tsr_status status = tsr__file_open(path, &file);
    if (status == TSR_OK) {
        status = look(&file, key, &metadata);
        tsr__file_close(&file);
    }
    if (status == TSR_OK)
        status = tsr__metadata_give(who, path, key, tsr__metadata_find(&metadata, key), size, text);
    else if (status != TSR_ERR_NO_MEMORY)
        status = tsr__fail_context(status, "%s: %s", who, path);
    tsr__metadata_finish(&metadata);
    return status;
}
