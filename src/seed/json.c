/* Snapshots as JSON:
 *
 *     {"format": "tessera.seed-snapshot", "version": 1, "generator": "philox",
 *      "epoch": 0, "streams": [
 *       {"kind": "device", "id": 0, "seed": 42, "state": "54535247…"}]}
 *
 * A state is what tsr_rng_save writes, in lower-case hexadecimal. */
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "seed/seed.h"

/* Longer than any number: jansson does not notice when it cannot enlarge its buffer for a token and
 * loses digits, but this name comes first, and a shortened one is rejected. */
#define FORMAT "tessera.seed-snapshot"
#define VERSION 1

/* Writing: nothing in a snapshot needs escaping, so the text is printed. With `text` NULL only its
 * length is found. */
typedef struct writer {
    char *text;
    size_t length;
} writer;

static void print(writer *to, const char *format, ...) TSR__PRINTF(2, 3);
static void print(writer *to, const char *format, ...)
{
    char line[192];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (to->text != NULL)
        memcpy(to->text + to->length, line, (size_t)length);
    to->length += (size_t)length;
}

static tsr_status write_streams(const tsr_seed_manager *manager, writer *to)
{
    uint8_t state[TSR_RNG_STATE_BYTES];
    size_t size;
    print(to,
          "{\"format\": \"" FORMAT "\", \"version\": %d, \"generator\": \"%s\", \"epoch\": %" PRId64
          ", \"streams\": [",
          VERSION, tsr_rng_kind_name(manager->params.rng), manager->epoch);
    for (size_t i = 0; i < manager->set.count; i++) {
        const tsr__seed_stream *stream = manager->set.streams[i];
        TSR__TRY(tsr_rng_save(&stream->rng, sizeof state, state, &size));
        print(to, "%s\n  {\"kind\": \"%s\", \"id\": %d, \"seed\": %" PRId64 ", \"state\": \"",
              i == 0 ? "" : ",", tsr_seed_kind_name(stream->kind), stream->id, stream->seed);
        for (size_t j = 0; j < size; j++)
            print(to, "%02x", state[j]);
        print(to, "\"}");
    }
    print(to, "]}\n");
    return TSR_OK;
}

tsr_status tsr_seed_save_json(const tsr_seed_manager *manager, size_t capacity_bytes, char *text,
                              size_t *size_bytes)
{
    TSR__REQUIRE(manager != NULL && size_bytes != NULL, "seed: %s is NULL",
                 manager != NULL ? "size_bytes" : "manager");
    writer measure = {0}, to = {.text = text};
    TSR__TRY(write_streams(manager, &measure));
    if (text != NULL) {
        TSR__REQUIRE(capacity_bytes >= measure.length,
                     "seed: the snapshot takes %zu bytes, there is room for %zu", measure.length,
                     capacity_bytes);
        TSR__TRY(write_streams(manager, &to));
    }
    *size_bytes = measure.length;
    return TSR_OK;
}

/* Reading. `where` names the member in errors: "streams[3]". */

/* A member that must be there and have this type. */
static tsr_status member_of(const json_t *object, const char *where, const char *name,
                            json_type type, json_t **out)
{
    static const char *const types[] = {"an object", "an array", "a string", "an integer"};
    json_t *member = json_object_get(object, name);
    TSR__REQUIRE(member != NULL, "seed: snapshot: %s: \"%s\" is missing", where, name);
    TSR__REQUIRE(json_typeof(member) == type, "seed: snapshot: %s: \"%s\" is not %s", where, name,
                 types[type]);
    *out = member;
    return TSR_OK;
}

static tsr_status integer_of(const json_t *object, const char *where, const char *name,
                             int64_t *out)
{
    json_t *member = NULL;
    TSR__TRY(member_of(object, where, name, JSON_INTEGER, &member));
    *out = json_integer_value(member);
    return TSR_OK;
}

static tsr_status only_members(json_t *object, const char *where, const char *const *names)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const char *const *name = names;
        while (*name != NULL && strcmp(*name, key) != 0)
            name++;
        TSR__REQUIRE(*name != NULL, "seed: snapshot: %s: unknown member \"%.80s\"", where, key);
    }
    return TSR_OK;
}

/* -1 for what is no digit. */
static int hex_digit(char digit)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = digit != '\0' ? strchr(digits, digit) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

static tsr_status read_state(const json_t *member, const char *where, tsr_rng *rng)
{
    uint8_t state[TSR_RNG_STATE_BYTES];
    const char *hex = json_string_value(member);
    size_t length = json_string_length(member);
    TSR__REQUIRE(length % 2 == 0 && length <= 2 * sizeof state,
                 "seed: snapshot: %s: a \"state\" of %zu digits cannot be", where, length);
    for (size_t i = 0; i < length; i += 2) {
        int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
        TSR__REQUIRE(high >= 0 && low >= 0,
                     "seed: snapshot: %s: \"state\", offset %zu: no hexadecimal digits", where, i);
        state[i / 2] = (uint8_t)(high << 4 | low);
    }
    if (tsr_rng_load(state, length / 2, rng) != TSR_OK)
        return tsr__fail_context(TSR_ERR_INVALID, "seed: snapshot: %s: \"state\"", where);
    return TSR_OK;
}

static tsr_status read_kind(const json_t *member, const char *where, tsr_seed_kind *out)
{
    for (int kind = TSR_SEED_PROCESS; kind <= TSR_SEED_WORKER; kind++)
        if (strcmp(json_string_value(member), tsr_seed_kind_name((tsr_seed_kind)kind)) == 0) {
            *out = (tsr_seed_kind)kind;
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_INVALID, "seed: snapshot: %s: '%.80s' is no kind of stream", where,
                     json_string_value(member));
}

static tsr_status read_stream(json_t *object, const char *where, tsr_rng_kind generator,
                              tsr__seed_set *set)
{
    static const char *const names[] = {"kind", "id", "seed", "state", NULL};
    json_t *kind_member = NULL, *state = NULL;
    int64_t id = 0, seed = 0;
    tsr_seed_kind kind = TSR_SEED_PROCESS;
    tsr_rng rng;
    tsr__seed_stream *stream = NULL;
    TSR__REQUIRE(json_is_object(object), "seed: snapshot: %s is not an object", where);
    TSR__TRY(only_members(object, where, names));
    TSR__TRY(member_of(object, where, "kind", JSON_STRING, &kind_member));
    TSR__TRY(read_kind(kind_member, where, &kind));
    TSR__TRY(integer_of(object, where, "id", &id));
    TSR__REQUIRE(tsr__seed_id_fits(kind, id), "seed: snapshot: %s: there can be no %s %" PRId64,
                 where, tsr_seed_kind_name(kind), id);
    TSR__REQUIRE(tsr__seed_find(set, kind, (int)id) == NULL,
                 "seed: snapshot: %s: %s %" PRId64 " comes twice", where, tsr_seed_kind_name(kind),
                 id);
    TSR__TRY(integer_of(object, where, "seed", &seed));
    TSR__TRY(member_of(object, where, "state", JSON_STRING, &state));
    TSR__TRY(read_state(state, where, &rng));
    TSR__REQUIRE(rng.kind == generator,
                 "seed: snapshot: %s: the generator is %s, the snapshot's are %s", where,
                 tsr_rng_kind_name(rng.kind), tsr_rng_kind_name(generator));
    TSR__TRY(tsr__seed_add(set, kind, (int)id, &stream));
    stream->seed = seed;
    stream->rng = rng;
    return TSR_OK;
}

static tsr_status read_document(const tsr_seed_manager *manager, json_t *document,
                                tsr__seed_set *set, int64_t *epoch)
{
    static const char *const names[] = {"format", "version", "generator", "epoch", "streams", NULL};
    static const char where[] = "top level";
    json_t *format = NULL, *generator = NULL, *streams = NULL;
    int64_t version = 0;
    TSR__REQUIRE(json_is_object(document), "seed: snapshot: it is not an object");
    TSR__TRY(member_of(document, where, "format", JSON_STRING, &format));
    TSR__REQUIRE(strcmp(json_string_value(format), FORMAT) == 0,
                 "seed: snapshot: format '%.80s' is not '" FORMAT "'", json_string_value(format));
    TSR__TRY(integer_of(document, where, "version", &version));
    TSR__REQUIRE(version == VERSION, "seed: snapshot: version %" PRId64 " is not %d", version,
                 VERSION);
    TSR__TRY(only_members(document, where, names));
    TSR__TRY(member_of(document, where, "generator", JSON_STRING, &generator));
    TSR__REQUIRE(strcmp(json_string_value(generator), tsr_rng_kind_name(manager->params.rng)) == 0,
                 "seed: snapshot: its generators are '%.80s', the manager's are %s",
                 json_string_value(generator), tsr_rng_kind_name(manager->params.rng));
    TSR__TRY(integer_of(document, where, "epoch", epoch));
    TSR__REQUIRE(*epoch >= 0 && *epoch <= TSR__SEED_MAX_EPOCH,
                 "seed: snapshot: epoch %" PRId64 " is outside 0 to %d", *epoch,
                 TSR__SEED_MAX_EPOCH);
    TSR__TRY(member_of(document, where, "streams", JSON_ARRAY, &streams));
    for (size_t i = 0; i < json_array_size(streams); i++) {
        char place[40];
        snprintf(place, sizeof place, "streams[%zu]", i);
        TSR__TRY(read_stream(json_array_get(streams, i), place, manager->params.rng, set));
    }
    return TSR_OK;
}

tsr_status tsr_seed_restore_json(tsr_seed_manager *manager, const char *text, size_t size_bytes)
{
    TSR__REQUIRE(manager != NULL && text != NULL, "seed: %s is NULL",
                 manager != NULL ? "text" : "manager");
    json_error_t error;
    json_t *document = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &error);
    /* jansson has no text for most allocations that fail; a string that it had no memory for it
     * calls an invalid token. */
    if (document == NULL && error.text[0] == '\0')
        return tsr__fail(TSR_ERR_NO_MEMORY, "seed: no memory to read a snapshot of %zu bytes",
                         size_bytes);
    TSR__REQUIRE(document != NULL, "seed: snapshot: offset %d (line %d): %s", error.position,
                 error.line, error.text);
    tsr__seed_set set = {0};
    int64_t epoch = 0;
    tsr_status status = read_document(manager, document, &set, &epoch);
    json_decref(document);
    if (status != TSR_OK) {
        tsr__seed_set_finish(&set);
        return status;
    }
    tsr__seed_replace(manager, &set, epoch);
    return TSR_OK;
}
