/* Snapshots as JSON:
 *
 *     {"format": "tessera.seed-snapshot", "version": 1, "generator": "philox",
 *      "epoch": 0, "streams": [
 *       {"kind": "device", "id": 0, "seed": 42, "state": "54535247…"}]}
 *
 * A state is the output of tsr_rng_save in lower-case hexadecimal. Members may come in any order;
 * other members are an error. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "seed/seed.h"
#include "json/json.h"
#include "json/json_write.h"

#define FORMAT "tessera.seed-snapshot"
#define VERSION 1

/* Writes the snapshot as JSON. Strings are not escaped, because none contains a character that must
 * be. */
static tsr_status write_streams(const tsr_seed_manager *manager, tsr__json_writer *to)
{
    uint8_t state[TSR_RNG_STATE_BYTES];
    size_t size;
    tsr__json_print(to,
                    "{\"format\": \"" FORMAT
                    "\", \"version\": %d, \"generator\": \"%s\", \"epoch\": %" PRId64
                    ", \"streams\": [",
                    VERSION, tsr_rng_kind_name(manager->params.rng), manager->epoch);
    for (size_t i = 0; i < manager->set.count; i++) {
        const tsr__seed_stream *stream = manager->set.streams[i];
        TSR__TRY(tsr_rng_save(&stream->rng, sizeof state, state, &size));
        tsr__json_print(
            to, "%s\n  {\"kind\": \"%s\", \"id\": %d, \"seed\": %" PRId64 ", \"state\": \"",
            i == 0 ? "" : ",", tsr_seed_kind_name(stream->kind), stream->id, stream->seed);
        for (size_t j = 0; j < size; j++)
            tsr__json_print(to, "%02x", state[j]);
        tsr__json_print(to, "\"}");
    }
    tsr__json_print(to, "]}\n");
    return TSR_OK;
}

tsr_status tsr__seed_save_json(const tsr_seed_manager *manager, size_t capacity_bytes, char *text,
                               size_t *size_bytes)
{
    tsr__json_writer measure = {0}, to = {.text = text};
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

/* Reading -------------------------------------------------------------------------------------- */

typedef struct reader {
    tsr__json json;
    tsr_rng_kind generator;
    int64_t epoch;
    tsr__seed_set set;
    char key[TSR__JSON_TEXT];
    char state[2 * TSR_RNG_STATE_BYTES + 1];
} reader;

#define MAX_MEMBERS 5

/* The offsets of the values of an object's members. An unknown member is not reported at once,
 * because an unknown format or version must be reported first. `unknown` is the error for the first
 * unknown member. */
typedef struct members {
    size_t offsets[MAX_MEMBERS]; /* 0 if the member is missing */
    bool has_unknown;
    tsr__error unknown;
} members;

/* Finds the members of the object at the reader's position. `names`, the array of known names, ends
 * in NULL. */
static tsr_status find_members(reader *from, const char *const *names, members *out)
{
    tsr__json *json = &from->json;
    unsigned seen = 0;
    bool more = false;
    *out = (members){0};
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        int member = -1;
        TSR__TRY(tsr__json_member(json, from->key, &more));
        if (!more)
            return TSR_OK;
        tsr_status status = tsr__json_known(json, names, from->key, &seen, &member);
        if (status == TSR_OK) {
            out->offsets[member] = json->at;
        } else if (!out->has_unknown) {
            out->has_unknown = true;
            out->unknown = tsr__error_take();
        }
        TSR__TRY(tsr__json_skip(json));
    }
}

static tsr_status only_known(const members *found)
{
    if (!found->has_unknown)
        return TSR_OK;
    tsr__error_put_back(&found->unknown);
    return TSR_ERR_INVALID;
}

/* Moves to the value of a required member. `start` is the offset of the member's object, for the
 * error text. */
static tsr_status go_to(reader *from, const members *found, const char *const *names, int member,
                        size_t start)
{
    if (found->offsets[member] == 0)
        return tsr__json_fail(&from->json, start, "\"%s\" is missing", names[member]);
    from->json.at = found->offsets[member];
    return TSR_OK;
}

/* Reads the string that is the member's value into from->state. */
static tsr_status read_string(reader *from, const members *found, const char *const *names,
                              int member, size_t start)
{
    TSR__TRY(go_to(from, found, names, member, start));
    return tsr__json_string(&from->json, sizeof from->state, from->state);
}

static tsr_status read_integer(reader *from, const members *found, const char *const *names,
                               int member, size_t start, int64_t *out)
{
    TSR__TRY(go_to(from, found, names, member, start));
    return tsr__json_signed(&from->json, out);
}

/* Returns the value of a hexadecimal digit, or -1 for any other character. */
static int hex_digit(char digit)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = digit != '\0' ? strchr(digits, digit) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

/* Loads the generator whose saved state is the hexadecimal text in from->state. `offset` is the
 * offset of this text in the JSON text. */
static tsr_status decode_state(const reader *from, size_t offset, tsr_rng *rng)
{
    uint8_t bytes[TSR_RNG_STATE_BYTES];
    const char *hex = from->state;
    size_t length = strlen(hex);
    if (length % 2 != 0)
        return tsr__json_fail(&from->json, offset,
                              "a state of %zu hexadecimal digits, an odd number", length);
    for (size_t i = 0; i < length; i += 2) {
        int high = hex_digit(hex[i]), low = hex_digit(hex[i + 1]);
        if (high < 0 || low < 0)
            return tsr__json_fail(&from->json, offset,
                                  "digits %zu and %zu of the state are not hexadecimal", i, i + 1);
        bytes[i / 2] = (uint8_t)(high << 4 | low);
    }
    if (tsr_rng_load(bytes, length / 2, rng) != TSR_OK)
        return tsr__json_fail_context(&from->json, offset, TSR_ERR_INVALID);
    return TSR_OK;
}

/* Gives the kind of stream whose name is in from->state. */
static tsr_status decode_kind(const reader *from, size_t offset, tsr_seed_kind *out)
{
    char text[TSR__NAME_SHORT];
    for (int kind = TSR_SEED_PROCESS; kind <= TSR_SEED_WORKER; kind++)
        if (strcmp(from->state, tsr_seed_kind_name((tsr_seed_kind)kind)) == 0) {
            *out = (tsr_seed_kind)kind;
            return TSR_OK;
        }
    return tsr__json_fail(&from->json, offset, "'%s' is no kind of stream",
                          tsr__name_short(from->state, text));
}

static tsr_status read_stream(reader *from)
{
    static const char *const names[] = {"kind", "id", "seed", "state", NULL};
    enum { KIND, ID, SEED, STATE };
    tsr__json *json = &from->json;
    members found;
    int64_t id = 0, seed = 0;
    tsr_seed_kind kind = TSR_SEED_PROCESS;
    tsr_rng rng;
    tsr__seed_stream *stream = NULL;
    const size_t start = json->at;
    TSR__TRY(find_members(from, names, &found));
    const size_t end = json->at;
    TSR__TRY(only_known(&found));
    TSR__TRY(read_string(from, &found, names, KIND, start));
    TSR__TRY(decode_kind(from, found.offsets[KIND], &kind));
    TSR__TRY(read_integer(from, &found, names, ID, start, &id));
    if (!tsr__seed_id_fits(kind, id))
        return tsr__json_fail(json, found.offsets[ID], "there is no %s %" PRId64,
                              tsr_seed_kind_name(kind), id);
    if (tsr__seed_find(&from->set, kind, (int)id) != NULL)
        return tsr__json_fail(json, start, "%s %" PRId64 " comes twice", tsr_seed_kind_name(kind),
                              id);
    TSR__TRY(read_integer(from, &found, names, SEED, start, &seed));
    TSR__TRY(read_string(from, &found, names, STATE, start));
    TSR__TRY(decode_state(from, found.offsets[STATE], &rng));
    if (rng.kind != from->generator)
        return tsr__json_fail(json, found.offsets[STATE],
                              "the generator is %s, but the snapshot's generators are %s",
                              tsr_rng_kind_name(rng.kind), tsr_rng_kind_name(from->generator));
    TSR__TRY(tsr__seed_add(&from->set, kind, (int)id, &stream));
    stream->seed = seed;
    stream->rng = rng;
    json->at = end;
    return TSR_OK;
}

static tsr_status read_streams(reader *from)
{
    tsr__json *json = &from->json;
    bool more = false;
    TSR__TRY(tsr__json_enter(json, '['));
    for (uint64_t i = 0;; i++) {
        TSR__TRY(tsr__json_element(json, &more));
        if (!more)
            return TSR_OK;
        tsr__subject_set(&json->subject, "stream", NULL, i);
        TSR__TRY(read_stream(from));
        tsr__subject_clear(&json->subject);
    }
}

static tsr_status read_snapshot(reader *from)
{
    static const char *const names[] = {"format", "version", "generator", "epoch", "streams", NULL};
    enum { FORMAT_NAME, FORMAT_VERSION, GENERATOR, EPOCH, STREAMS };
    tsr__json *json = &from->json;
    char text[TSR__NAME_SHORT];
    members found;
    int64_t version = 0;
    TSR__TRY(find_members(from, names, &found));
    TSR__TRY(tsr__json_end(json));
    TSR__TRY(read_string(from, &found, names, FORMAT_NAME, 0));
    if (strcmp(from->state, FORMAT) != 0)
        return tsr__json_fail(json, found.offsets[FORMAT_NAME], "format '%s' is not '" FORMAT "'",
                              tsr__name_short(from->state, text));
    TSR__TRY(read_integer(from, &found, names, FORMAT_VERSION, 0, &version));
    if (version != VERSION)
        return tsr__json_fail(json, found.offsets[FORMAT_VERSION], "version %" PRId64 " is not %d",
                              version, VERSION);
    TSR__TRY(only_known(&found));
    TSR__TRY(read_string(from, &found, names, GENERATOR, 0));
    if (strcmp(from->state, tsr_rng_kind_name(from->generator)) != 0)
        return tsr__json_fail(
            json, found.offsets[GENERATOR], "its generators are '%s', but the manager's are %s",
            tsr__name_short(from->state, text), tsr_rng_kind_name(from->generator));
    TSR__TRY(read_integer(from, &found, names, EPOCH, 0, &from->epoch));
    if (from->epoch < 0 || from->epoch > TSR__SEED_MAX_EPOCH)
        return tsr__json_fail(json, found.offsets[EPOCH], "epoch %" PRId64 " is outside 0 to %d",
                              from->epoch, TSR__SEED_MAX_EPOCH);
    TSR__TRY(go_to(from, &found, names, STREAMS, 0));
    return read_streams(from);
}

tsr_status tsr__seed_load_json(tsr_seed_manager *manager, const char *text, size_t size_bytes)
{
    reader *from = tsr__calloc(1, sizeof *from);
    if (from == NULL)
        return TSR_ERR_NO_MEMORY;
    from->json = (tsr__json){.text = text, .size = size_bytes, .what = "seed: snapshot"};
    from->generator = manager->params.rng;
    tsr_status status = read_snapshot(from);
    if (status == TSR_OK)
        tsr__seed_replace(manager, &from->set, from->epoch);
    tsr__seed_set_finish(&from->set);
    tsr__free(from);
    return status;
}
