#include "planner/document.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "json/json.h"

#define MAX_DEPTH 32
#define LONGEST_DOCUMENT 100000000
/* The longest string that is decoded, in bytes: names, and texts that are compared. */
#define LONGEST_TEXT 512

tsr_status tsr__document_fail(const tsr__document *document, const char *format, ...)
{
    char reason[768];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return tsr__fail(TSR_ERR_INVALID, "%.200s: %s", document->name, reason);
}

/* Opening -------------------------------------------------------------------------------------- */

static tsr__json reader_at(tsr__value value)
{
    return (tsr__json){.text = value.document->text,
                       .size = value.document->size,
                       .at = value.start,
                       .what = value.document->name};
}

/* Reads a value and everything inside it. Afterwards no function of the reader fails on it, except
 * for strings that exceed a buffer and numbers that exceed their type. */
static tsr_status check_value(tsr__json *json, int depth, char key[TSR__JSON_TEXT])
{
    const char first = tsr__json_peek(json);
    bool more = false;
    if (first != '{' && first != '[')
        return tsr__json_skip(json);
    if (depth == MAX_DEPTH)
        return tsr__json_fail(json, json->at, "brackets nested more than %d deep", MAX_DEPTH);
    TSR__TRY(tsr__json_enter(json, first));
    for (;;) {
        TSR__TRY(first == '{' ? tsr__json_member(json, key, &more)
                              : tsr__json_element(json, &more));
        if (!more)
            return TSR_OK;
        TSR__TRY(check_value(json, depth + 1, key));
    }
}

static tsr_status check_document(const tsr__document *document)
{
    const char *problem = tsr__text_problem(document->text, document->size);
    if (problem)
        return tsr__document_fail(document, "%s", problem);
    char *key = tsr__calloc(TSR__JSON_TEXT, 1);
    if (!key)
        return TSR_ERR_NO_MEMORY;
    tsr__json json = reader_at((tsr__value){document, 0});
    tsr_status status = check_value(&json, 0, key);
    if (status == TSR_OK)
        status = tsr__json_end(&json);
    tsr__free(key);
    return status;
}

static tsr_status read_all(FILE *file, const char *path, tsr__bytes *out)
{
    char chunk[4096];
    size_t count;
    while ((count = fread(chunk, 1, sizeof chunk, file)) > 0) {
        if (out->size + count > LONGEST_DOCUMENT)
            return tsr__fail(TSR_ERR_INVALID, "%.200s: has more than %d bytes", path,
                             LONGEST_DOCUMENT);
        TSR__TRY(tsr__bytes_append(out, chunk, count));
    }
    return ferror(file) ? tsr__fail(TSR_ERR_IO, "%.200s: %s", path, strerror(errno)) : TSR_OK;
}

static tsr_status load_file(const char *path, tsr__bytes *out)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return tsr__fail(errno == ENOENT || errno == ENOTDIR ? TSR_ERR_NOT_FOUND : TSR_ERR_IO,
                         "%.200s: %s", path, strerror(errno));
    const tsr_status status = read_all(file, path, out);
    (void)fclose(file);
    return status;
}

tsr_status tsr__document_open(const char *path, tsr__document *out)
{
    tsr__bytes bytes = {0};
    tsr_status status = load_file(path, &bytes);
    *out = (tsr__document){.name = path,
                           .owned = bytes.data,
                           .text = bytes.data ? (const char *)bytes.data : "",
                           .size = bytes.size};
    if (status == TSR_OK)
        status = check_document(out);
    if (status != TSR_OK)
        tsr__document_close(out);
    return status;
}

tsr_status tsr__document_of_text(const char *name, const char *text, tsr__document *out)
{
    *out = (tsr__document){.name = name, .text = text, .size = strlen(text)};
    return check_document(out);
}

void tsr__document_close(tsr__document *document)
{
    tsr__free(document->owned);
    *document = (tsr__document){0};
}

/* Values --------------------------------------------------------------------------------------- */

/* The reader cannot fail here, because the document has been checked. */
#define CHECKED(call) ((call) == TSR_OK)

static char first_character(tsr__value value)
{
    if (!value.document)
        return '\0';
    tsr__json json = reader_at(value);
    return tsr__json_peek(&json);
}

static bool is_number(tsr__value value)
{
    const char first = first_character(value);
    return first == '-' || (first >= '0' && first <= '9');
}

tsr__value tsr__document_root(const tsr__document *document)
{
    return (tsr__value){document, 0};
}

bool tsr__value_is_object(tsr__value value)
{
    return first_character(value) == '{';
}

bool tsr__value_is_array(tsr__value value)
{
    return first_character(value) == '[';
}

tsr__value tsr__value_member(tsr__value object, const char *name)
{
    char key[TSR__JSON_TEXT];
    bool more = false;
    if (!tsr__value_is_object(object))
        return (tsr__value){0};
    tsr__json json = reader_at(object);
    if (!CHECKED(tsr__json_enter(&json, '{')))
        return (tsr__value){0};
    while (CHECKED(tsr__json_member(&json, key, &more)) && more) {
        if (strcmp(key, name) == 0)
            return (tsr__value){object.document, json.at};
        if (!CHECKED(tsr__json_skip(&json)))
            break;
    }
    return (tsr__value){0};
}

tsr_status tsr__value_check_members(const tsr__document *document, tsr__value value,
                                    const char *where, const char *const *names)
{
    char key[TSR__JSON_TEXT];
    bool more = false;
    uint32_t seen = 0;
    if (!tsr__value_is_object(value))
        return tsr__document_fail(document, "%s is not an object", where);
    tsr__json json = reader_at(value);
    TSR__TRY(tsr__json_enter(&json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(&json, key, &more));
        if (!more)
            return TSR_OK;
        const int number = tsr__json_find(names, key);
        if (number < 0)
            return tsr__document_fail(document, "%s has the unknown member \"%.40s\"", where, key);
        if (seen >> number & 1u)
            return tsr__document_fail(document, "%s has \"%s\" twice", where, key);
        seen |= UINT32_C(1) << number;
        TSR__TRY(tsr__json_skip(&json));
    }
}

tsr__elements tsr__value_elements(tsr__value array)
{
    return (tsr__elements){.next = tsr__value_is_array(array) ? array : (tsr__value){0}};
}

bool tsr__next_element(tsr__elements *elements, tsr__value *out)
{
    bool more = false;
    if (!elements->next.document)
        return false;
    tsr__json json = reader_at(elements->next);
    /* `next` is the opening bracket, and then the last element that was given. */
    const bool moved =
        elements->started ? CHECKED(tsr__json_skip(&json)) : CHECKED(tsr__json_enter(&json, '['));
    elements->started = true;
    if (!moved || !CHECKED(tsr__json_element(&json, &more)) || !more) {
        elements->next = (tsr__value){0};
        return false;
    }
    elements->next.start = json.at;
    *out = elements->next;
    return true;
}

size_t tsr__value_count(tsr__value array)
{
    tsr__elements list = tsr__value_elements(array);
    tsr__value element;
    size_t count = 0;
    while (tsr__next_element(&list, &element))
        count++;
    return count;
}

bool tsr__value_real(tsr__value value, double *out)
{
    if (!is_number(value))
        return false;
    tsr__json json = reader_at(value);
    return tsr__json_real(&json, out) == TSR_OK;
}

bool tsr__value_integer(tsr__value value, int64_t *out)
{
    if (!is_number(value))
        return false;
    tsr__json json = reader_at(value), end = json;
    if (!CHECKED(tsr__json_skip(&end)))
        return false;
    (void)tsr__json_peek(&json);
    for (size_t i = json.at; i < end.at; i++)
        if (strchr(".eE", json.text[i]))
            return false;
    return tsr__json_signed(&json, out) == TSR_OK;
}

bool tsr__value_text(tsr__value value, size_t size, char *text)
{
    char decoded[LONGEST_TEXT];
    if (first_character(value) != '"')
        return false;
    tsr__json json = reader_at(value), end = json;
    /* The decoded string is not longer than its characters in the document. */
    if (!CHECKED(tsr__json_skip(&end)) || end.at - json.at > sizeof decoded ||
        !CHECKED(tsr__json_string(&json, sizeof decoded, decoded)) || strlen(decoded) >= size)
        return false;
    memcpy(text, decoded, strlen(decoded) + 1);
    return true;
}

bool tsr__value_is(tsr__value value, const char *text)
{
    char found[LONGEST_TEXT];
    return tsr__value_text(value, sizeof found, found) && strcmp(found, text) == 0;
}

tsr_status tsr__value_number(const tsr__document *document, tsr__value object, const char *where,
                             tsr__number_limits limits, double *out)
{
    const tsr__value value = tsr__value_member(object, limits.name);
    double number = 0;
    if (!value.document && limits.optional)
        return TSR_OK;
    if (!value.document)
        return tsr__document_fail(document, "%s has no \"%s\"", where, limits.name);
    if (!tsr__value_real(value, &number))
        return tsr__document_fail(document, "\"%s\" of %s is not a number", limits.name, where);
    if (!(number >= limits.low && number <= limits.high) || (number <= 0 && !limits.optional))
        return tsr__document_fail(document, "\"%s\" of %s is %g; it must be %s and at most %g",
                                  limits.name, where, number,
                                  limits.optional ? "at least 0" : "more than 0", limits.high);
    *out = number;
    return TSR_OK;
}
