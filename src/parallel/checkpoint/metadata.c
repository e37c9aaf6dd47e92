/* Reads the metadata of a safetensors file, which are pairs of a key and a text. */
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/checkpoint.h"
#include "shard/formats/file.h"
#include "shard/formats/list.h"
#include "json/json.h"

typedef struct search {
    const char *wanted;
    char key[TSR__JSON_TEXT];
    char *text; /* NULL: not found yet */
} search;

/* Reads a text of any length. Allocates as many bytes as its JSON form has. This is enough, because
 * an escape sequence is longer than its character, and the quotes leave room for the terminating
 * zero. */
static tsr_status read_text(tsr__json *json, search *s)
{
    const size_t start = json->at;
    TSR__TRY(tsr__json_skip(json));
    const size_t most = json->at - start;
    json->at = start;
    tsr__free(s->text); /* frees the previous text if a key occurs twice */
    s->text = tsr__calloc(most, 1);
    return s->text ? tsr__json_string(json, most, s->text) : TSR_ERR_NO_MEMORY;
}

static tsr_status read_pairs(tsr__json *json, search *s)
{
    bool more = false;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(json, s->key, &more));
        if (!more)
            return TSR_OK;
        if (strcmp(s->key, s->wanted) == 0)
            TSR__TRY(read_text(json, s));
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

/* Checks the complete header first, and then parses it again to find the key. */
static tsr_status look(tsr__file *file, search *s)
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
    tsr__json json = {.text = header + 8, .size = size, .base = 8, .what = file->what};
    if (status == TSR_OK)
        status = read_header(&json, s);
    tsr__free(header);
    return status;
}

tsr_status tsr_checkpoint_metadata(const char *path, const char *key, size_t size, char *text)
{
    TSR__REQUIRE(path && key && text, "checkpoint_metadata: %s is NULL",
                 !path ? "path"
                 : key ? "text"
                       : "key");
    search *s = tsr__calloc(1, sizeof *s);
    if (!s)
        return TSR_ERR_NO_MEMORY;
    s->wanted = key;
    tsr__file file;
    tsr_status status = tsr__file_open(path, &file);
    if (status == TSR_OK) {
        status = look(&file, s);
        tsr__file_close(&file);
    }
    if (status != TSR_OK && status != TSR_ERR_NO_MEMORY)
        status = tsr__fail_context(status, "checkpoint_metadata: %s", path);
    else if (status == TSR_OK && !s->text)
        status =
            tsr__fail(TSR_ERR_NOT_FOUND, "checkpoint_metadata: %s: there is no '%s'", path, key);
    else if (status == TSR_OK && strlen(s->text) >= size)
        status =
            tsr__fail(TSR_ERR_INVALID, "checkpoint_metadata: %s: '%s' needs %zu bytes, not %zu",
                      path, key, strlen(s->text) + 1, size);
    if (status == TSR_OK)
        memcpy(text, s->text, strlen(s->text) + 1);
    tsr__free(s->text);
    tsr__free(s);
    return status;
}
