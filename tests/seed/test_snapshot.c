/* Snapshots of all streams as bytes and as JSON, and input that is no snapshot. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "support/check_main.h"
#include "support/random.h"
#include "tessera/seed.h"

static const tsr_rng_kind kinds[] = {TSR_RNG_PHILOX, TSR_RNG_MT19937, TSR_RNG_DOTNET,
                                     TSR_RNG_THREEFRY};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef tsr_status (*save_fn)(const tsr_seed_manager *manager, size_t capacity, void *data,
                              size_t *size);
typedef tsr_status (*load_fn)(tsr_seed_manager *manager, const void *data, size_t size);

static tsr_status save_bytes(const tsr_seed_manager *manager, size_t capacity, void *data,
                             size_t *size)
{
    return tsr_seed_save(manager, TSR_SEED_FORMAT_BYTES, capacity, data, size);
}

static tsr_status load_bytes(tsr_seed_manager *manager, const void *data, size_t size)
{
    return tsr_seed_load(manager, TSR_SEED_FORMAT_BYTES, data, size);
}

static tsr_status save_json(const tsr_seed_manager *manager, size_t capacity, void *data,
                            size_t *size)
{
    return tsr_seed_save(manager, TSR_SEED_FORMAT_JSON, capacity, data, size);
}

static tsr_status load_json(tsr_seed_manager *manager, const void *data, size_t size)
{
    return tsr_seed_load(manager, TSR_SEED_FORMAT_JSON, data, size);
}

static const struct {
    save_fn save;
    load_fn load;
} forms[] = {{save_bytes, load_bytes}, {save_json, load_json}};
enum { FORMS = sizeof forms / sizeof *forms };

static tsr_seed_manager *created(tsr_rng_kind rng)
{
    tsr_seed_manager *manager = NULL;
    ck_assert_ok(tsr_seed_manager_create(tsr_seed_manager_params(.rng = rng), &manager));
    return manager;
}

/* Returns a manager with a process, two devices and a worker, which have made different numbers of
 * draws. */
static tsr_seed_manager *used(tsr_rng_kind rng)
{
    tsr_seed_manager *manager = created(rng);
    tsr_rng *stream = NULL;
    ck_assert_ok(tsr_seed_global(manager, -42));
    ck_assert_ok(
        tsr_seed_set(manager, TSR_SEED_DEVICE, 7, rng == TSR_RNG_DOTNET ? INT32_MIN : INT64_MIN));
    ck_assert_ok(tsr_seed_set(manager, TSR_SEED_WORKER, 2, 2147483647));
    ck_assert_ok(tsr_seed_set_epoch(manager, 3));
    ck_assert_ok(tsr_seed_stream(manager, TSR_SEED_DEVICE, 7, &stream));
    for (int i = 0; i < 1001; i++)
        (void)tsr_rng_next_u32(stream);
    ck_assert_ok(tsr_seed_stream(manager, TSR_SEED_WORKER, 2, &stream));
    (void)tsr_rng_next_u32(stream);
    return manager;
}

/* Returns a snapshot, which the caller must free(). */
static char *saved(const tsr_seed_manager *manager, save_fn save, size_t *size)
{
    ck_assert_ok(save(manager, 0, NULL, size));
    char *data = malloc(*size + 1);
    size_t written = 0;
    ck_assert_ok(save(manager, *size, data, &written));
    ck_assert_uint_eq(written, *size);
    data[*size] = '\0';
    return data;
}

static void check_same_stream(tsr_seed_manager *a, tsr_seed_manager *b, tsr_seed_kind kind, int id)
{
    tsr_rng *x = NULL, *y = NULL;
    ck_assert_ok(tsr_seed_stream(a, kind, id, &x));
    ck_assert_ok(tsr_seed_stream(b, kind, id, &y));
    for (int i = 0; i < 700; i++)
        ck_assert(tsr_rng_next_u32(x) == tsr_rng_next_u32(y));
}

START_TEST(every_stream_continues)
{
    for (int form = 0; form < FORMS; form++) {
        tsr_seed_manager *manager = used(kinds[_i]), *other = created(kinds[_i]);
        size_t size, again_size;
        char *data = saved(manager, forms[form].save, &size);
        ck_assert_ok(tsr_seed_all(other, TSR_SEED_DEVICE, 1000, 20));
        ck_assert_ok(forms[form].load(other, data, size));

        char *again = saved(other, forms[form].save, &again_size);
        ck_assert_uint_eq(again_size, size);
        ck_assert_mem_eq(again, data, size);
        int64_t seed = 0;
        ck_assert_ok(tsr_seed_of(other, TSR_SEED_DEVICE, 7, &seed));
        ck_assert_int_eq(seed, kinds[_i] == TSR_RNG_DOTNET ? INT32_MIN : INT64_MIN);
        ck_assert_error(tsr_seed_of(other, TSR_SEED_DEVICE, 1, &seed), TSR_ERR_NOT_FOUND,
                        "seed: device 1 has not been seeded");
        check_same_stream(manager, other, TSR_SEED_PROCESS, 0);
        check_same_stream(manager, other, TSR_SEED_DEVICE, 0);
        check_same_stream(manager, other, TSR_SEED_DEVICE, 7);
        check_same_stream(manager, other, TSR_SEED_WORKER, 2);

        /* Restores the snapshot into the same manager, which has drawn more numbers since. */
        ck_assert_ok(forms[form].load(manager, data, size));
        free(again);
        again = saved(manager, forms[form].save, &again_size);
        ck_assert_mem_eq(again, data, size);
        free(again);
        free(data);
        tsr_seed_manager_destroy(&manager);
        tsr_seed_manager_destroy(&other);
    }
}
END_TEST

START_TEST(nothing_seeded_is_a_snapshot_too)
{
    for (int form = 0; form < FORMS; form++) {
        tsr_seed_manager *manager = created(TSR_RNG_PHILOX), *other = used(TSR_RNG_PHILOX);
        size_t size;
        char *data = saved(manager, forms[form].save, &size);
        ck_assert_ok(forms[form].load(other, data, size));
        int64_t seed;
        ck_assert_error(tsr_seed_of(other, TSR_SEED_PROCESS, 0, &seed), TSR_ERR_NOT_FOUND,
                        "seed: the process has not been seeded");
        free(data);
        tsr_seed_manager_destroy(&manager);
        tsr_seed_manager_destroy(&other);
    }
}
END_TEST

/* Reads the JSON with another parser and compares its exact text, because people and other programs
 * read it. */
START_TEST(json_is_as_documented)
{
    tsr_seed_manager *manager = created(TSR_RNG_THREEFRY);
    ck_assert_ok(tsr_seed_set(manager, TSR_SEED_DEVICE, 1, INT64_MIN));
    size_t size;
    char *text = saved(manager, save_json, &size);
    const char head[] = "{\"format\": \"tessera.seed-snapshot\", \"version\": 1, \"generator\": "
                        "\"threefry\", \"epoch\": 0, \"streams\": [\n"
                        "  {\"kind\": \"device\", \"id\": 1, \"seed\": -9223372036854775808, "
                        "\"state\": \"5453524701000300"
                        "0000008000000000"
                        "0000000000000000";
    ck_assert_uint_eq(strlen(text), size);
    ck_assert_int_eq(strncmp(text, head, strlen(head)), 0);
    ck_assert_str_eq(text + strlen(head) + 16, "\"}]}\n");
    json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(
                         json_array_get(json_object_get(document, "streams"), 0), "seed")),
                     INT64_MIN);
    json_decref(document);
    free(text);
    tsr_seed_manager_destroy(&manager);
}
END_TEST

START_TEST(room_is_checked)
{
    tsr_seed_manager *manager = created(TSR_RNG_PHILOX);
    char room[256] = "untouched";
    size_t size = 7;
    ck_assert_ok(tsr_seed_set(manager, TSR_SEED_DEVICE, 0, 1));
    ck_assert_error(tsr_seed_save(manager, TSR_SEED_FORMAT_BYTES, 87, room, &size), TSR_ERR_INVALID,
                    "seed: the snapshot takes 88 bytes, there is room for 87");
    ck_assert_error(tsr_seed_save(manager, TSR_SEED_FORMAT_JSON, 233, room, &size), TSR_ERR_INVALID,
                    "seed: the snapshot takes 234 bytes, there is room for 233");
    ck_assert_str_eq(room, "untouched");
    ck_assert_uint_eq(size, 7);
    tsr_seed_manager_destroy(&manager);
}
END_TEST

START_TEST(damaged_generators_are_not_saved)
{
    tsr_seed_manager *manager = created(TSR_RNG_MT19937);
    tsr_rng *stream = NULL;
    size_t size;
    ck_assert_ok(tsr_seed_set(manager, TSR_SEED_DEVICE, 0, 1));
    ck_assert_ok(tsr_seed_stream(manager, TSR_SEED_DEVICE, 0, &stream));
    stream->as.mt19937.next = 1000;
    for (int form = 0; form < FORMS; form++)
        ck_assert_error(forms[form].save(manager, 0, NULL, &size), TSR_ERR_INVALID,
                        "rng: the mt19937 generator is damaged: the next word is beyond the last");
    tsr_seed_manager_destroy(&manager);
}
END_TEST

/* Checks that a failing restore leaves the manager unchanged. */
static void check_rejected(tsr_seed_manager *manager, load_fn load, const void *data, size_t size,
                           const char *text)
{
    size_t before_size, after_size;
    char *before = saved(manager, save_bytes, &before_size);
    /* The memory has exactly this size, so that sanitizers detect reads past the end. */
    void *exact = malloc(size == 0 ? 1 : size);
    memcpy(exact, data, size);
    if (text != NULL)
        ck_assert_error(load(manager, exact, size), TSR_ERR_INVALID, text);
    else
        ck_assert_int_eq(load(manager, exact, size), TSR_ERR_INVALID);
    char *after = saved(manager, save_bytes, &after_size);
    ck_assert_uint_eq(before_size, after_size);
    ck_assert_mem_eq(before, after, after_size);
    free(exact);
    free(before);
    free(after);
}

/* Writes the checksum that fits the data at its end. */
static void reseal(char *data, size_t size)
{
    uint64_t checksum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size - 8; i++)
        checksum = (checksum ^ (uint8_t)data[i]) * UINT64_C(0x100000001b3);
    for (int i = 0; i < 8; i++)
        data[size - 8 + (size_t)i] = (char)(uint8_t)(checksum >> (8 * i));
}

START_TEST(bytes_that_are_not_a_snapshot)
{
    tsr_seed_manager *manager = created(TSR_RNG_PHILOX);
    ck_assert_ok(tsr_seed_global(manager, 1)); /* 148 bytes, streams at offsets 20 and 80 */
    size_t size;
    char *data = saved(manager, save_bytes, &size), *copy = malloc(size + 8);
    ck_assert_uint_eq(size, 148);
    const struct {
        size_t offset;
        uint8_t value;
        size_t size;
        const char *text;
    } cases[] = {
        {0, 'T', 27, "seed: snapshot: offset 0: 27 bytes are too few"},
        {0, 'X', 148, "seed: snapshot: offset 0: it does not start with \"TSRM\""},
        {4, 2, 148, "seed: snapshot: offset 4: version 2 is not 1"},
        {6, 2, 148,
         "seed: snapshot: offset 6: its generators are dotnet, the manager's are philox"},
        {6, 77, 148, "seed: snapshot: offset 6: its generators are ?, the manager's are philox"},
        {15, 0x80, 148,
         "seed: snapshot: offset 8: epoch 9223372036854775808 is outside 0 to 1048575"},
        {16, 1, 148, "seed: snapshot: offset 80: 60 bytes follow the last stream"},
        {16, 3, 148, "seed: snapshot: offset 140: 0 bytes are too few for a stream"},
        {20, 3, 148, "seed: snapshot: offset 20: 3 is no kind of stream"},
        {23, 0xff, 148, "seed: snapshot: offset 20: 4278190080 is no kind of stream"},
        {24, 1, 148, "seed: snapshot: offset 24: there can be no process 1"},
        {86, 1, 148, "seed: snapshot: offset 84: there can be no device 65536"},
        {80, 0, 148, "seed: snapshot: offset 80: process 0 comes twice"},
        {96, 41, 148, "seed: snapshot: offset 96: a state of 41 bytes in the last 40"},
        {96, 39, 148,
         "seed: snapshot: offset 100: rng: saved state: offset 8: a philox generator takes 40 "
         "bytes, not 39"},
        {100, 'X', 148,
         "seed: snapshot: offset 100: rng: saved state: offset 0: it does not start with "
         "\"TSRG\""},
        {0, 'T', 140, NULL}, /* too short, with a matching checksum */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(copy, data, size);
        copy[cases[i].offset] = (char)cases[i].value;
        reseal(copy, cases[i].size);
        check_rejected(manager, load_bytes, copy, cases[i].size, cases[i].text);
    }
    memcpy(copy, data, size);
    memset(copy + 140, 0, 8);
    check_rejected(manager, load_bytes, copy, size, NULL);
    ck_assert_ptr_nonnull(
        strstr(tsr_last_error(), "seed: snapshot: offset 140: checksum 0000000000000000 is not "));
    free(copy);
    free(data);
    tsr_seed_manager_destroy(&manager);
}
END_TEST

/* One stream has another generator than the header says. */
START_TEST(mixed_generators)
{
    tsr_seed_manager *philox = created(TSR_RNG_PHILOX), *threefry = created(TSR_RNG_THREEFRY);
    ck_assert_ok(tsr_seed_set(threefry, TSR_SEED_DEVICE, 0, 1));
    size_t size;
    char *data = saved(threefry, save_bytes, &size);
    data[6] = TSR_RNG_PHILOX;
    reseal(data, size);
    check_rejected(philox, load_bytes, data, size,
                   "seed: snapshot: offset 40: the generator is threefry, the snapshot's are "
                   "philox");
    free(data);
    data = saved(threefry, save_json, &size);
    char *name = strstr(data, "\"threefry\"");
    char mixed[1024];
    int length =
        snprintf(mixed, sizeof mixed, "%.*s\"philox\"%s", (int)(name - data), data, name + 10);
    check_rejected(philox, load_json, mixed, (size_t)length,
                   "seed: snapshot: offset 148: stream 0: the generator is threefry, but the "
                   "snapshot's generators are philox");
    free(data);
    tsr_seed_manager_destroy(&philox);
    tsr_seed_manager_destroy(&threefry);
}
END_TEST

#define HEAD "{\"format\": \"tessera.seed-snapshot\", \"version\": 1, \"generator\": \"philox\", "
#define STREAMS HEAD "\"epoch\": 0, \"streams\": ["

START_TEST(json_that_is_not_a_snapshot)
{
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"", "seed: snapshot: offset 0: an object expected, but the text ends"},
        {"{\"a\": 1,}", "seed: snapshot: offset 8: a string expected, not '}'"},
        {"{\"a\": 1, \"a\": 2}", "seed: snapshot: offset 0: \"format\" is missing"},
        {HEAD "\"epoch\": 0, \"epoch\": 1}", "seed: snapshot: offset 85: \"epoch\" comes twice"},
        {"[]", "seed: snapshot: offset 0: an object expected, not '['"},
        {"{}", "seed: snapshot: offset 0: \"format\" is missing"},
        {"{\"format\": 3}", "seed: snapshot: offset 11: a string expected, not '3'"},
        {"{\"format\": \"x\"}",
         "seed: snapshot: offset 11: format 'x' is not 'tessera.seed-snapshot'"},
        {"{\"format\": \"tessera.seed-snapshot\", \"version\": 2}",
         "seed: snapshot: offset 47: version 2 is not 1"},
        {"{\"format\": \"tessera.seed-snapshot\", \"version\": 1.5}",
         "seed: snapshot: offset 47: a number that is no integer from -2^63 to 2^63 - 1"},
        {"{\"format\": \"tessera.seed-snapshot\", \"version\": 1, \"generator\": \"pcg\"}",
         "seed: snapshot: offset 63: its generators are 'pcg', but the manager's are philox"},
        {HEAD "\"extra\": 0}", "seed: snapshot: offset 73: unknown member \"extra\""},
        {HEAD "\"epoch\": -1}", "seed: snapshot: offset 82: epoch -1 is outside 0 to 1048575"},
        {HEAD "\"epoch\": 9223372036854775808}",
         "seed: snapshot: offset 82: a number that is no integer from -2^63 to 2^63 - 1"},
        {HEAD "\"epoch\": -9223372036854775809}",
         "seed: snapshot: offset 82: a number that is no integer from -2^63 to 2^63 - 1"},
        {HEAD "\"epoch\": 0}", "seed: snapshot: offset 0: \"streams\" is missing"},
        {HEAD "\"epoch\": 0, \"streams\": {}}",
         "seed: snapshot: offset 96: an array expected, not '{'"},
        {STREAMS "3]}", "seed: snapshot: offset 97: stream 0: an object expected, not '3'"},
        {STREAMS "{\"name\": 1}]}", "seed: snapshot: offset 98: stream 0: unknown member \"name\""},
        {STREAMS "{\"kind\": \"op\"}]}",
         "seed: snapshot: offset 106: stream 0: 'op' is no kind of stream"},
        {STREAMS "{\"kind\": \"device\", \"id\": 65536}]}",
         "seed: snapshot: offset 122: stream 0: there is no device 65536"},
        {STREAMS "{\"kind\": \"device\", \"id\": -1}]}",
         "seed: snapshot: offset 122: stream 0: there is no device -1"},
        {STREAMS "{\"kind\": \"process\", \"id\": 1}]}",
         "seed: snapshot: offset 123: stream 0: there is no process 1"},
        {STREAMS "{\"kind\": \"device\", \"id\": 0}]}",
         "seed: snapshot: offset 97: stream 0: \"seed\" is missing"},
        {STREAMS "{\"kind\": \"device\", \"id\": 0, \"seed\": true}]}",
         "seed: snapshot: offset 133: stream 0: an integer expected, not 't'"},
        {STREAMS "{\"kind\": \"device\", \"id\": 0, \"seed\": 1, \"state\": \"abc\"}]}",
         "seed: snapshot: offset 145: stream 0: a state of 3 hexadecimal digits, an odd number"},
        {STREAMS "{\"kind\": \"device\", \"id\": 0, \"seed\": 1, \"state\": \"54535x\"}]}",
         "seed: snapshot: offset 145: stream 0: digits 4 and 5 of the state are not hexadecimal"},
        {STREAMS "{\"kind\": \"device\", \"id\": 0, \"seed\": 1, \"state\": \"5453\"}]}",
         "seed: snapshot: offset 145: stream 0: rng: saved state: offset 0: 2 bytes are too few "
         "for a header of 8"},
    };
    tsr_seed_manager *manager = used(TSR_RNG_PHILOX);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_rejected(manager, load_json, cases[i].json, strlen(cases[i].json), cases[i].text);
    tsr_seed_manager_destroy(&manager);
}
END_TEST

START_TEST(json_streams_come_once)
{
    tsr_seed_manager *manager = created(TSR_RNG_PHILOX);
    ck_assert_ok(tsr_seed_set(manager, TSR_SEED_DEVICE, 4, 1));
    size_t size;
    char *text = saved(manager, save_json, &size), twice[1024];
    char *stream = strstr(text, "{\"kind\"");
    snprintf(twice, sizeof twice, "%.*s%.*s, %s", (int)(stream - text), text,
             (int)(strlen(stream) - 3), stream, stream);
    check_rejected(manager, load_json, twice, strlen(twice),
                   "seed: snapshot: offset 233: stream 1: device 4 comes twice");
    free(text);
    tsr_seed_manager_destroy(&manager);
}
END_TEST

/* Changes any bit of the bytes, or any character of the JSON. The change must be detected, or it
 * must only be another way to write the same snapshot. */
START_TEST(every_change_is_detected_or_harmless)
{
    tsr_seed_manager *manager = used(TSR_RNG_PHILOX), *other = created(TSR_RNG_PHILOX);
    size_t size;
    char *data = saved(manager, save_bytes, &size);
    for (size_t i = 0; i < 8 * size; i++) {
        data[i / 8] = (char)(data[i / 8] ^ 1 << i % 8);
        ck_assert(tsr_seed_load(other, TSR_SEED_FORMAT_BYTES, data, size) == TSR_ERR_INVALID);
        data[i / 8] = (char)(data[i / 8] ^ 1 << i % 8);
    }
    for (size_t shorter = 0; shorter < size; shorter++)
        ck_assert(tsr_seed_load(other, TSR_SEED_FORMAT_BYTES, data, shorter) == TSR_ERR_INVALID);
    free(data);

    char *text = saved(manager, save_json, &size);
    uint64_t state = 1;
    for (size_t i = 0; i < size; i++) {
        char kept = text[i];
        text[i] = (char)(random_next(&state) % 256);
        (void)!tsr_seed_load(other, TSR_SEED_FORMAT_JSON, text, size);
        text[i] = kept;
    }
    /* Without any of the bytes, except the last newline, the snapshot must be refused. */
    for (size_t shorter = 0; shorter < size - 1; shorter++)
        ck_assert(tsr_seed_load(other, TSR_SEED_FORMAT_JSON, text, shorter) == TSR_ERR_INVALID);
    free(text);
    tsr_seed_manager_destroy(&manager);
    tsr_seed_manager_destroy(&other);
}
END_TEST

/* Tests random bytes between a valid header and a valid checksum. */
START_TEST(noise_does_no_harm)
{
    tsr_seed_manager *manager = used(TSR_RNG_PHILOX);
    size_t size;
    char *data = saved(manager, save_bytes, &size);
    uint64_t state = 2;
    for (int round = 0; round < 20000; round++) {
        char *copy = malloc(size);
        memcpy(copy, data, size);
        for (int i = 0; i < 3; i++)
            copy[16 + random_next(&state) % (size - 24)] = (char)(random_next(&state) % 256);
        size_t kept = 28 + random_next(&state) % (size - 27);
        reseal(copy, kept);
        (void)!tsr_seed_load(manager, TSR_SEED_FORMAT_BYTES, copy, kept);
        free(copy);
    }
    free(data);
    tsr_seed_manager_destroy(&manager);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    for (int form = 0; form < FORMS; form++) {
        tsr_seed_manager *source = used(TSR_RNG_PHILOX);
        size_t size;
        char *data = saved(source, forms[form].save, &size);
        int failed = 0;
        for (uint64_t nth = 0;; nth++, failed++) {
            tsr_seed_manager *manager = created(TSR_RNG_PHILOX);
            ck_assert_ok(tsr_seed_set(manager, TSR_SEED_DEVICE, 1, 5));
            tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
            tsr_status status = forms[form].load(manager, data, size);
            bool reached = tsr__fault_site() != NULL;
            tsr__fault_disarm();
            if (status != (reached ? TSR_ERR_NO_MEMORY : TSR_OK))
                ck_abort_msg("form %d, allocation %d: %s: %s", form, failed,
                             tsr_status_name(status), tsr_last_error());
            int64_t seed = 0;
            if (reached)
                ck_assert_ok(tsr_seed_of(manager, TSR_SEED_DEVICE, 1, &seed));
            tsr_seed_manager_destroy(&manager);
            if (!reached)
                break;
        }
        ck_assert_int_gt(failed, 4);
        free(data);
        tsr_seed_manager_destroy(&source);
    }
}
END_TEST

TESTS(snapshot)
{
    tcase_add_loop_test(tests, every_stream_continues, 0, KINDS);
    tcase_add_test(tests, nothing_seeded_is_a_snapshot_too);
    tcase_add_test(tests, json_is_as_documented);
    tcase_add_test(tests, room_is_checked);
    tcase_add_test(tests, damaged_generators_are_not_saved);
    tcase_add_test(tests, bytes_that_are_not_a_snapshot);
    tcase_add_test(tests, mixed_generators);
    tcase_add_test(tests, json_that_is_not_a_snapshot);
    tcase_add_test(tests, json_streams_come_once);
    tcase_add_test(tests, every_change_is_detected_or_harmless);
    tcase_add_test(tests, noise_does_no_harm);
    tcase_add_test(tests, every_allocation_may_fail);
}
