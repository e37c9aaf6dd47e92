/* Reads the metadata of a safetensors file, which are pairs of a key and a text. */
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/checkpoint.h"
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
