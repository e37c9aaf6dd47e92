#include "shard/formats/gguf_metadata.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/float16.h"
#include "shard/formats/file_kind.h"
#include "json/text_check.h"

#define MAX_DEPTH 8 /* the maximum depth of arrays inside arrays */

/* The size in bytes of a value of each type. It is 0 for strings and arrays, whose size depends on
 * their length. */
static const unsigned value_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
#define TYPES (sizeof value_bytes / sizeof *value_bytes)

tsr_status tsr__gguf_head(tsr__gguf *gguf, uint64_t *tensors, uint64_t *metadata)
{
    uint8_t magic[4];
    uint32_t version = 0;
    TSR__TRY(tsr__file_kind_expect(gguf->file, TSR__FILE_GGUF));
    TSR__TRY(tsr__gguf_take(gguf, sizeof magic, "the magic", magic));
    if (memcmp(magic, "GGUF", sizeof magic) != 0)
        return tsr__file_fail(gguf->file, TSR_ERR_INVALID, 0,
                              "the file does not start with \"GGUF\"");
    TSR__TRY(tsr__gguf_u32(gguf, "the version", &version));
    if (version != 2 && version != 3)
        return tsr__file_fail(gguf->file, TSR_ERR_UNSUPPORTED, 4,
                              (version & 0xffff) == 0 && version != 0
                                  ? "version 0x%08" PRIx32 ": a big-endian file"
                                  : "version %" PRIu32 " is neither 2 nor 3",
                              version);
    TSR__TRY(tsr__gguf_u64(gguf, "the number of tensors", tensors));
    TSR__TRY(tsr__gguf_u64(gguf, "the number of metadata", metadata));
    if (*tensors > TSR_SHARD_MAX_PARAMS)
        return tsr__file_fail(gguf->file, TSR_ERR_INVALID, 8,
                              "%" PRIu64 " tensors are more than the %d allowed", *tensors,
                              TSR_SHARD_MAX_PARAMS);
    return TSR_OK;
}

static tsr_status too_long(const tsr__gguf *gguf)
{
    return tsr__file_fail(gguf->file, TSR_ERR_INVALID, gguf->at,
                          "the header is longer than the %" PRIu64 " bytes allowed",
                          TSR__MAX_HEADER);
}

tsr_status tsr__gguf_take(tsr__gguf *gguf, uint64_t size, const char *content, void *out)
{
    if (gguf->at + size > TSR__MAX_HEADER)
        return too_long(gguf);
    TSR__TRY(tsr__file_read(gguf->file, gguf->at, size, content, out));
    gguf->at += size;
    return TSR_OK;
}

tsr_status tsr__gguf_u32(tsr__gguf *gguf, const char *content, uint32_t *out)
{
    uint8_t bytes[4];
    TSR__TRY(tsr__gguf_take(gguf, sizeof bytes, content, bytes));
    *out = (uint32_t)tsr__little_endian(bytes, 4);
    return TSR_OK;
}

tsr_status tsr__gguf_u64(tsr__gguf *gguf, const char *content, uint64_t *out)
{
    uint8_t bytes[8];
    TSR__TRY(tsr__gguf_take(gguf, sizeof bytes, content, bytes));
    *out = tsr__little_endian(bytes, 8);
    return TSR_OK;
}

/* Skips count × size bytes. It is an error if the file does not contain all of them. */
static tsr_status skip_bytes(tsr__gguf *gguf, uint64_t count, uint64_t size, const char *content)
{
    uint64_t bytes;
    if (!tsr__mul_u64(count, size, &bytes) || gguf->at > gguf->file->size ||
        bytes > gguf->file->size - gguf->at)
        return tsr__file_fail(gguf->file, TSR_ERR_INVALID, gguf->at,
                              "%" PRIu64 " × %" PRIu64 " bytes of %s go beyond the file's %" PRIu64,
                              count, size, content, gguf->file->size);
    if (gguf->at + bytes > TSR__MAX_HEADER)
        return too_long(gguf);
    gguf->at += bytes;
    return TSR_OK;
}

tsr_status tsr__gguf_name(tsr__gguf *gguf, const char *content)
{
    uint64_t length = 0, start = gguf->at;
    TSR__TRY(tsr__gguf_u64(gguf, content, &length));
    if (length > TSR_SHARD_MAX_NAME)
        return tsr__file_fail(gguf->file, TSR_ERR_INVALID, start,
                              "%s of %" PRIu64 " bytes is longer than the %d allowed", content,
                              length, TSR_SHARD_MAX_NAME);
    TSR__TRY(tsr__gguf_take(gguf, length, content, gguf->name));
    gguf->name[length] = '\0';
    const char *problem = tsr__name_problem(gguf->name, length);
    /* tsr__name_problem rejects control characters, and therefore zero bytes inside the name. */
    if (problem != NULL)
        return tsr__file_fail(gguf->file, TSR_ERR_INVALID, start, "%s %s", content, problem);
    return TSR_OK;
}

/* Metadata ------------------------------------------------------------------------------------- */

static tsr_status skip_value(tsr__gguf *gguf, uint32_t type, int depth);

static tsr_status skip_array(tsr__gguf *gguf, int depth)
{
    uint32_t type = 0;
    uint64_t count = 0, start = gguf->at;
    if (depth == MAX_DEPTH)
        return tsr__file_fail(gguf->file, TSR_ERR_INVALID, start, "arrays nested more than %d deep",
                              MAX_DEPTH);
    TSR__TRY(tsr__gguf_u32(gguf, "an array's type", &type));
    TSR__TRY(tsr__gguf_u64(gguf, "an array's length", &count));
    if (type < TYPES && value_bytes[type] > 0)
        return skip_bytes(gguf, count, value_bytes[type], "an array");
    /* Each element takes at least 8 bytes, so this loop ends at the latest at the end of the file
     * or at the maximum size of a header. */
    for (uint64_t i = 0; i < count; i++)
        TSR__TRY(skip_value(gguf, type, depth));
    return TSR_OK;
}

static tsr_status skip_value(tsr__gguf *gguf, uint32_t type, int depth)
{
    uint64_t length = 0;
    if (type >= TYPES)
        return tsr__file_fail(gguf->file, TSR_ERR_INVALID, gguf->at,
                              "metadata type %" PRIu32 " is unknown", type);
    if (type == TSR__GGUF_ARRAY)
        return skip_array(gguf, depth + 1);
    if (type == TSR__GGUF_STRING) {
        TSR__TRY(tsr__gguf_u64(gguf, "a string's length", &length));
        return skip_bytes(gguf, length, 1, "a string");
    }
    return skip_bytes(gguf, 1, value_bytes[type], "a value");
}

tsr_status tsr__gguf_skip(tsr__gguf *gguf, uint32_t type)
{
    return skip_value(gguf, type, 0);
}

/* Looking up keys ------------------------------------------------------------------------------ */

static tsr_status note_value(tsr__gguf *gguf, uint32_t type, tsr__gguf_value *value)
{
    if (value->found)
        return tsr__file_fail(gguf->file, TSR_ERR_INVALID, gguf->at, "the key comes twice");
    value->found = true;
    value->type = type;
    value->is_array = type == TSR__GGUF_ARRAY;
    value->count = 1;
    value->at = gguf->at;
    if (!value->is_array)
        return TSR_OK;
    tsr__gguf inside = *gguf;
    TSR__TRY(tsr__gguf_u32(&inside, "an array's type", &value->type));
    TSR__TRY(tsr__gguf_u64(&inside, "an array's length", &value->count));
    value->at = inside.at;
    return TSR_OK;
}

tsr_status tsr__gguf_find(tsr__file *file, tsr__gguf_value *values, size_t count)
{
    tsr__gguf gguf = {.file = file};
    uint64_t tensors = 0, metadata = 0;
    file->what = "gguf";
    for (size_t v = 0; v < count; v++)
        values[v] = (tsr__gguf_value){.key = values[v].key};
    TSR__TRY(tsr__gguf_head(&gguf, &tensors, &metadata));
    for (uint64_t i = 0; i < metadata; i++) {
        uint32_t type = 0;
        TSR__TRY(tsr__gguf_name(&gguf, "a metadata key"));
        tsr__subject_set(&file->subject, "key", gguf.name, i);
        TSR__TRY(tsr__gguf_u32(&gguf, "a value's type", &type));
        for (size_t v = 0; v < count; v++)
            if (strcmp(values[v].key, gguf.name) == 0)
                TSR__TRY(note_value(&gguf, type, &values[v]));
        TSR__TRY(tsr__gguf_skip(&gguf, type));
        tsr__subject_clear(&file->subject);
    }
    return TSR_OK;
}

tsr_status tsr__gguf_keys_add(tsr__gguf_keys *keys, const tsr__gguf *gguf, uint32_t type)
{
    void *items = keys->items;
    if (keys->count == TSR_SHARD_MAX_PARAMS)
        return tsr__file_fail(gguf->file, TSR_ERR_INVALID, gguf->at,
                              "there are more metadata than the %d allowed", TSR_SHARD_MAX_PARAMS);
    TSR__TRY(tsr__grow(&items, &keys->capacity, keys->count + 1, sizeof *keys->items));
    keys->items = items;
    tsr__gguf_value *added = &keys->items[keys->count];
    *added = (tsr__gguf_value){0};
    tsr__gguf at_value = *gguf;
    TSR__TRY(note_value(&at_value, type, added));
    added->key = tsr__strdup(gguf->name);
    if (added->key == NULL)
        return TSR_ERR_NO_MEMORY;
    keys->count++;
    return TSR_OK;
}

void tsr__gguf_keys_finish(tsr__gguf_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++)
        tsr__free((void *)keys->items[i].key);
    tsr__free(keys->items);
    *keys = (tsr__gguf_keys){0};
}

tsr_status tsr__gguf_look_up(tsr__file *file, const tsr__gguf_keys *keys, tsr__gguf_value *values,
                             size_t count)
{
    file->what = "gguf";
    for (size_t v = 0; v < count; v++) {
        const char *key = values[v].key;
        values[v] = (tsr__gguf_value){.key = key};
        for (size_t i = 0; i < keys->count; i++) {
            if (strcmp(keys->items[i].key, key) != 0)
                continue;
            if (values[v].found) {
                tsr__subject_set(&file->subject, "key", key, i);
                return tsr__file_fail(file, TSR_ERR_INVALID, keys->items[i].at,
                                      "the key comes twice");
            }
            values[v] = keys->items[i];
            values[v].key = key;
        }
    }
    return TSR_OK;
}

static tsr_status wrong_type(tsr__file *file, const tsr__gguf_value *value, const char *wanted)
{
    tsr__subject_set(&file->subject, "key", value->key, 0);
    tsr_status status =
        tsr__file_fail(file, TSR_ERR_INVALID, value->at, "it is %s of type %" PRIu32 ", not %s",
                       value->is_array ? "an array" : "a value", value->type, wanted);
    tsr__subject_clear(&file->subject);
    return status;
}

tsr_status tsr__gguf_check_array(tsr__file *file, const tsr__gguf_value *value, uint32_t type,
                                 const char *wanted)
{
    return value->is_array && value->type == type ? TSR_OK : wrong_type(file, value, wanted);
}

tsr_status tsr__gguf_integer(tsr__file *file, const tsr__gguf_value *value, int64_t *out)
{
    uint8_t bytes[8] = {0};
    static const bool is_signed[TYPES] = {[1] = true, [3] = true, [5] = true, [11] = true};
    bool is_integer = !value->is_array && value->type < TYPES && value_bytes[value->type] > 0 &&
                      value->type != TSR__GGUF_F32 && value->type != TSR__GGUF_BOOL &&
                      value->type != TSR__GGUF_F64;
    if (!is_integer)
        return wrong_type(file, value, "an integer");
    int size = (int)value_bytes[value->type];
    TSR__TRY(tsr__file_read(file, value->at, (uint64_t)size, value->key, bytes));
    uint64_t bits = tsr__little_endian(bytes, size);
    bool negative = is_signed[value->type] && (bits >> (8 * size - 1)) != 0;
    if (negative && size < 8)
        bits |= UINT64_MAX << (8 * size);
    if (!negative && bits > INT64_MAX)
        return wrong_type(file, value, "an integer up to 2^63 - 1");
    *out = tsr__as_i64(bits);
    return TSR_OK;
}

tsr_status tsr__gguf_real(tsr__file *file, const tsr__gguf_value *value, double *out)
{
    uint8_t bytes[8] = {0};
    int64_t integer = 0;
    const bool is_float =
        !value->is_array && (value->type == TSR__GGUF_F32 || value->type == TSR__GGUF_F64);
    if (!is_float) {
        TSR__TRY(tsr__gguf_integer(file, value, &integer));
        *out = (double)integer;
        return TSR_OK;
    }
    TSR__TRY(tsr__file_read(file, value->at, value_bytes[value->type], value->key, bytes));
    const uint64_t bits = tsr__little_endian(bytes, 8);
    if (value->type == TSR__GGUF_F32)
        *out = (double)tsr__f32_of_bits((uint32_t)bits);
    else
        memcpy(out, &bits, sizeof *out);
    return TSR_OK;
}

tsr_status tsr__gguf_bool(tsr__file *file, const tsr__gguf_value *value, bool *out)
{
    uint8_t byte = 0;
    if (value->is_array || value->type != TSR__GGUF_BOOL)
        return wrong_type(file, value, "a bool");
    TSR__TRY(tsr__file_read(file, value->at, 1, value->key, &byte));
    *out = byte != 0;
    return TSR_OK;
}

tsr_status tsr__gguf_string(tsr__gguf *gguf, const char *content, size_t capacity, char *text,
                            size_t *size)
{
    uint64_t length = 0, start = gguf->at;
    TSR__TRY(tsr__gguf_u64(gguf, content, &length));
    if (length >= capacity)
        return tsr__file_fail(gguf->file, TSR_ERR_INVALID, start,
                              "%s of %" PRIu64 " bytes is longer than the %zu allowed", content,
                              length, capacity - 1);
    TSR__TRY(tsr__gguf_take(gguf, length, content, text));
    text[length] = '\0';
    *size = (size_t)length;
    return TSR_OK;
}

tsr_status tsr__gguf_name_of(tsr__file *file, const tsr__gguf_value *value,
                             char name[TSR_SHARD_MAX_NAME + 1])
{
    tsr__gguf gguf = {.file = file, .at = value->at};
    if (value->is_array || value->type != TSR__GGUF_STRING)
        return wrong_type(file, value, "a string");
    TSR__TRY(tsr__gguf_name(&gguf, value->key));
    memcpy(name, gguf.name, strlen(gguf.name) + 1);
    return TSR_OK;
}
