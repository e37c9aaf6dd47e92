/* Golden files: real outputs of other systems, in tests/data. The start of each file says where its
 * data come from and how they are written. A test fails if a file or a value is not as expected. */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"

/* Loads tests/data/<name>.json. The caller must json_decref() it. */
static inline json_t *golden_load(const char *name)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s.json", TEST_DATA, name);
    json_t *document = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (document == NULL)
        ck_abort_msg("%s:%d:%d: %s", path, error.line, error.column, error.text);
    const char *format = json_string_value(json_object_get(document, "format"));
    if (format == NULL || strcmp(format, "tessera-golden-1") != 0)
        ck_abort_msg("%s is no golden file", path);
    return document;
}

static inline json_t *golden_member(const json_t *object, const char *name)
{
    json_t *member = json_object_get(object, name);
    if (member == NULL)
        ck_abort_msg("there is no \"%s\"", name);
    return member;
}

/* Returns a list that is not empty. */
static inline json_t *golden_list(const json_t *object, const char *name)
{
    json_t *list = golden_member(object, name);
    if (json_array_size(list) == 0)
        ck_abort_msg("\"%s\" is no list, or an empty one", name);
    return list;
}

static inline int64_t golden_integer(const json_t *object, const char *name)
{
    json_t *member = golden_member(object, name);
    if (!json_is_integer(member))
        ck_abort_msg("\"%s\" is no integer", name);
    return json_integer_value(member);
}

static inline const char *golden_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(golden_member(object, name));
    if (text == NULL)
        ck_abort_msg("\"%s\" is no string", name);
    return text;
}

/* Returns the 64 bits of a decimal string from -2^63 to 2^64 - 1. */
static inline uint64_t golden_u64(const json_t *object, const char *name)
{
    const char *text = golden_text(object, name);
    char *end;
    errno = 0;
    uint64_t value = text[0] == '-' ? (uint64_t)strtoll(text, &end, 10) : strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        ck_abort_msg("\"%s\": '%s' is no 64-bit integer", name, text);
    return value;
}

static inline uint64_t golden_hex(const json_t *text)
{
    char *end;
    const char *digits = json_string_value(text);
    uint64_t value = digits != NULL ? strtoull(digits, &end, 16) : 0;
    if (digits == NULL || end == digits || *end != '\0')
        ck_abort_msg("'%s' is no hexadecimal number", digits != NULL ? digits : "");
    return value;
}

static inline uint64_t golden_hash(const int64_t *values, uint64_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint64_t i = 0; i < count; i++)
        for (int shift = 0; shift < 64; shift += 8)
            hash = (hash ^ ((uint64_t)values[i] >> shift & 0xff)) * UINT64_C(0x100000001b3);
    return hash;
}

static inline void golden_part(const char *id, const json_t *part, const int64_t *values)
{
    size_t i;
    json_t *value;
    json_array_foreach(part, i, value) if (values[i] != json_integer_value(value))
        ck_abort_msg("%s: value %zu is %" PRId64 ", not %" JSON_INTEGER_FORMAT, id, i, values[i],
                     json_integer_value(value));
}

/* Compares the values with a list in the files' short form: {count, fnv1a64, all} or {count,
 * fnv1a64, first8, last8}. */
static inline void golden_compare(const char *id, const json_t *list, const int64_t *values,
                                  uint64_t count)
{
    uint64_t expected = (uint64_t)golden_integer(list, "count");
    if (count != expected)
        ck_abort_msg("%s: %" PRIu64 " values, not %" PRIu64, id, count, expected);
    const json_t *all = json_object_get(list, "all"), *last = json_object_get(list, "last8");
    golden_part(id, all != NULL ? all : golden_member(list, "first8"), values);
    if (last != NULL)
        golden_part(id, last, values + count - json_array_size(last));
    if (golden_hash(values, count) != golden_hex(golden_member(list, "fnv1a64")))
        ck_abort_msg("%s: the hash of %" PRIu64 " values differs", id, count);
}

#endif
