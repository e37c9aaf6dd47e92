/* Parameter lists from files: JSON, indices, detection of the format, files that cannot be read,
 * and a model of 70 billion parameters whose weights are not read. */
#include <inttypes.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "shard/files.h"
#include "shard/formats/readers.h"
#include "shard/plans.h"

static folder in;

static void create(void)
{
    in = folder_create();
}

static void destroy(void)
{
    folder_destroy(&in);
}

/* Lists in JSON -------------------------------------------------------------------------------- */

static tsr_status parse(const char *text, tsr_shard_list **list)
{
    size_t size = strlen(text);
    bytes exact = {0};
    put_bytes(&exact, text, size);
    tsr_status status = tsr__list_parse(TSR_SHARD_JSON, exact.data, size, size, list);
    free(exact.data);
    return status;
}

static const char *const right[] = {
    "[{\"name\": \"a.0.w\", \"shape\": [2, 3], \"dtype\": \"bf16\"},\n"
    " {\"name\": \"b\", \"shape\": [], \"dtype\": \"F32\", \"layer\": \"x.y\", "
    "\"always_gather\": true}]",
    "  {\"params\":[{\"dtype\":\"bf16\",\"shape\":[\"2\",3],\"name\":\"a.0.w\","
    "\"always_gather\":false},{\"layer\":\"x.y\",\"name\":\"\\u0062\",\"shape\":[],"
    "\"dtype\":\"f32\",\"always_gather\":true}],\"metadata\":{\"any\":[1,2]}}\n",
};

START_TEST(json_lists)
{
    tsr_shard_list *list = NULL;
    ck_assert_ok(parse(right[_i], &list));
    ck_assert_int_eq(tsr_shard_list_format(list), TSR_SHARD_JSON);
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 2);
    const tsr_shard_param *params = tsr_shard_list_param(list, 0);
    ck_assert_str_eq(params[0].name, "a.0.w");
    ck_assert_str_eq(params[0].layer, "a.0");
    ck_assert_str_eq(params[0].dtype, "bf16");
    ck_assert_uint_eq(params[0].size_bytes, 12);
    ck_assert(!params[0].always_gather);
    ck_assert_str_eq(params[1].name, "b");
    ck_assert_str_eq(params[1].layer, "x.y");
    ck_assert_str_eq(params[1].dtype, "f32");
    ck_assert(params[1].always_gather);
    tsr_shard_list_destroy(&list);
}
END_TEST

START_TEST(an_empty_json_list)
{
    tsr_shard_list *list = NULL;
    ck_assert_ok(parse("[]", &list));
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 0);
    tsr_shard_list_destroy(&list);
}
END_TEST

#define A "{\"name\":\"a\",\"shape\":[1],\"dtype\":\"f32\""

static const struct {
    const char *json, *text;
} wrong[] = {
    {"", "json: offset 0: an object expected, but the text ends"},
    {"3", "json: offset 0: an object expected, not '3'"},
    {"{}", "json: offset 0: it has neither \"params\" nor a \"weight_map\""},
    {"{\"parameters\":[]}", "json: offset 1: unknown member \"parameters\""},
    {"{\"params\":[],\"params\":[]}", "json: offset 13: \"params\" comes twice"},
    {"{\"params\":[],\"weight_map\":{}}",
     "json: offset 0: it has both \"params\" and a \"weight_map\""},
    {"{\"weight_map\":{}}", "shard: an index cannot be read from memory"},
    {"[3]", "json: offset 1: parameter 0: an object expected, not '3'"},
    {"[{}]", "json: offset 1: parameter 0: \"name\" is missing"},
    {"[{\"name\":\"a\",\"dtype\":\"f32\"}]", "json: offset 1: parameter 'a': \"shape\" is missing"},
    {"[{\"name\":\"a\",\"shape\":[]}]", "json: offset 1: parameter 'a': \"dtype\" is missing"},
    {"[{\"shape\":[-1],\"name\":\"a\"}]",
     "json: offset 11: parameter 0: a number that is no integer from 0 to 2^64 - 1"},
    {"[{\"name\":\"a\\n\",\"shape\":[-1]}]",
     "json: offset 24: parameter 0: a number that is no integer from 0 to 2^64 - 1"},
    {"[" A "},{}]", "json: offset 40: parameter 1: \"name\" is missing"},
    {"[" A "} 1]", "json: offset 40: ',' or ']' expected, not '1'"},
    {"[" A ",\"gather\":true}]", "json: offset 39: parameter 'a': unknown member \"gather\""},
    {"[" A ",\"shards\":[]}]", "json: offset 39: parameter 'a': unknown member \"shards\""},
    {"[" A ",\"\\n\":true}]", "json: offset 39: parameter 'a': unknown member"},
    {"[" A ",\"name\":\"b\"}]", "json: offset 39: parameter 'a': \"name\" comes twice"},
    {"[" A ",\"always_gather\":1}]",
     "json: offset 55: parameter 'a': true or false expected, not '1'"},
    {"[" A ",\"layer\":\"\"}]", "json: offset 1: parameter 'a': its layer's name is empty"},
    {"[" A ",\"layer\":null}]", "json: offset 47: parameter 'a': a string expected, not 'n'"},
    {"[" A "}," A "}]", "json: offset 40: the name 'a' is used twice"},
    {"[" A "},]", "json: offset 40: parameter 1: an object expected, not ']'"},
    {"[" A "}] x", "json: offset 41: nothing more expected, not 'x'"},
    {"[{\"name\":\"a\",\"shape\":[1],\"dtype\":\"f33\"}]",
     "json: offset 1: parameter 'a': there is no dtype 'f33'"},
    {"[{\"name\":\"\",\"shape\":[1],\"dtype\":\"f32\"}]",
     "json: offset 1: parameter 0: its name is empty"},
    {"[{\"name\":\"a\",\"shape\":[1],\"dtype\":\"\\u001b\"}]",
     "json: offset 1: parameter 'a': its dtype's name has a control character"},
    {"[{\"name\":\"a\",\"shape\":[\"1x\"],\"dtype\":\"f32\"}]",
     "json: offset 22: parameter 'a': a string that is no integer from 0 to 2^64 - 1"},
};

START_TEST(invalid_json_lists)
{
    tsr_shard_list *list = NULL;
    ck_assert_error(parse(wrong[_i].json, &list), TSR_ERR_INVALID, wrong[_i].text);
    ck_assert_ptr_null(list);
}
END_TEST

START_TEST(no_prefix_of_json_is_a_list)
{
    tsr_shard_list *list = NULL;
    char text[512];
    for (size_t i = 0; i < COUNT_OF(right); i++)
        for (size_t length = 0; length + 1 < strlen(right[i]); length++) {
            snprintf(text, sizeof text, "%.*s", (int)length, right[i]);
            ck_assert(parse(text, &list) == TSR_ERR_INVALID);
        }
}
END_TEST

/* Finding the format of a file ----------------------------------------------------------------- */

static const char one[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";

/* The extension of the name determines the format; without an extension, the contents do. */
START_TEST(formats_are_detected)
{
    bytes safetensors = safetensors_file(one, 4), gguf = {0};
    put_gguf_head(&gguf, 3, 0, 0);
    const char json[] = "[]";
    const struct {
        const char *name;
        const void *data;
        size_t size;
        tsr_shard_format format;
    } files[] = {
        {"a.safetensors", safetensors.data, safetensors.size, TSR_SHARD_SAFETENSORS},
        {"a.gguf", gguf.data, gguf.size, TSR_SHARD_GGUF},
        {"a.json", json, 2, TSR_SHARD_JSON},
        {"plain1", safetensors.data, safetensors.size, TSR_SHARD_SAFETENSORS},
        {"plain2", gguf.data, gguf.size, TSR_SHARD_GGUF},
        {"plain3", json, 2, TSR_SHARD_JSON},
        {"plain4", "{\"params\":[]}", 13, TSR_SHARD_JSON},
    };
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        char path[160];
        tsr_shard_list *list = NULL;
        folder_write(&in, files[i].name, files[i].data, files[i].size, path);
        ck_assert_ok(tsr_shard_list_open(path, &list));
        ck_assert_int_eq(tsr_shard_list_format(list), files[i].format);
        tsr_shard_list_destroy(&list);
    }
    free(safetensors.data);
    free(gguf.data);
    ck_assert_str_eq(tsr_shard_format_name(TSR_SHARD_INDEX), "index");
    ck_assert_str_eq(tsr_shard_format_name((tsr_shard_format)4), "?");
}
END_TEST

/* Checks that opening fails with this error. `text` contains %s for the path. */
static void check_open_fails(const char *path, tsr_status status, const char *text)
{
    tsr_shard_list *list = NULL;
    char expected[1024];
    const char *rest = strstr(text, "%s");
    snprintf(expected, sizeof expected, "%.*s%s%s", (int)(rest - text), text, path, rest + 2);
    ck_assert_int_eq(tsr_shard_list_open(path, &list), status);
    ck_assert_str_eq(tsr_last_error(), expected);
    ck_assert_ptr_null(list);
}

START_TEST(files_that_cannot_be_read)
{
    char path[160];
    check_open_fails("/proc/nonexistent/model.gguf", TSR_ERR_NOT_FOUND,
                     "shard: cannot open %s: No such file or directory");
    check_open_fails(in.path, TSR_ERR_NOT_FOUND,
                     "shard: %s has neither model.safetensors nor model.safetensors.index.json");
#ifndef _WIN32 /* Windows has no pipes in the file system */
    snprintf(path, sizeof path, "%s/pipe.json", in.path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    check_open_fails(path, TSR_ERR_INVALID, "shard: %s is not a regular file");
#endif
    folder_write(&in, "empty", "", 0, path);
    check_open_fails(path, TSR_ERR_INVALID,
                     "%s: shard: offset 0: this is a file of no known format, not a "
                     "safetensors, GGUF or JSON file");
    folder_write(&in, "text", "hello, world", 12, path);
    check_open_fails(path, TSR_ERR_INVALID,
                     "%s: shard: offset 0: this is a file of no known format, not a "
                     "safetensors, GGUF or JSON file");
    folder_write(&in, "short.safetensors", "abc", 3, path);
    check_open_fails(path, TSR_ERR_INVALID,
                     "%s: safetensors: offset 0: the file of 3 bytes ends within the header's "
                     "length");
    folder_write(&in, "text.gguf", "hello, world", 12, path);
    check_open_fails(path, TSR_ERR_INVALID,
                     "%s: gguf: offset 0: the file does not start with \"GGUF\"");
    folder_write(&in, "huge.json", "[]", 2, path);
    ck_assert_int_eq(truncate(path, 100000001), 0);
    check_open_fails(path, TSR_ERR_INVALID,
                     "%s: json: offset 0: 100000001 bytes are more than the 100000000 allowed");
    tsr_shard_list *list = NULL;
    ck_assert_error(tsr__list_parse(TSR_SHARD_INDEX, "{}", 2, 2, &list), TSR_ERR_INVALID,
                    "shard: format 3 cannot be read from memory");
    ck_assert_error(tsr__list_parse(TSR_SHARD_JSON, NULL, 2, 2, &list), TSR_ERR_INVALID,
                    "shard: data is NULL");
    ck_assert_error(tsr__list_parse(TSR_SHARD_JSON, "[]", 2, 1, &list), TSR_ERR_INVALID,
                    "shard: size_bytes is 2, file_bytes 1");
}
END_TEST

/* Indices of models in several files ----------------------------------------------------------- */

static void write_part(const char *name, const char *header, size_t weights)
{
    char path[160];
    bytes file = safetensors_file(header, weights);
    folder_write(&in, name, file.data, file.size, path);
    free(file.data);
}

static char *write_index(const char *text, char path[160])
{
    return folder_write(&in, "model.safetensors.index.json", text, strlen(text), path);
}

#define F32_AT(name, start, end)                                                                   \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" start "," end "]}"

static void write_parts(void)
{
    write_part("part-2.safetensors", "{" F32_AT("a", "0", "4") "," F32_AT("b", "4", "8") "}", 8);
    write_part("part-10.safetensors", "{" F32_AT("c", "0", "4") "}", 4);
}

START_TEST(an_index)
{
    char path[160];
    tsr_shard_list *list = NULL;
    write_parts();
    write_index("{\"metadata\": {\"total_size\": 12}, \"weight_map\": {\"c\": "
                "\"part-10.safetensors\", \"b\": \"part-2.safetensors\", \"a\": "
                "\"part-2.safetensors\"}}",
                path);
    ck_assert_ok(tsr_shard_list_open(path, &list));
    ck_assert_int_eq(tsr_shard_list_format(list), TSR_SHARD_INDEX);
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 3);
    const tsr_shard_param *params = tsr_shard_list_param(list, 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(params[i].name[0], 'a' + i);
        ck_assert_str_eq(params[i].file, i < 2 ? "part-2.safetensors" : "part-10.safetensors");
    }
    ck_assert_uint_eq(params[1].offset_bytes, params[0].offset_bytes + 4);
    tsr_shard_list_destroy(&list);
}
END_TEST

START_TEST(an_index_of_nothing)
{
    char path[160];
    tsr_shard_list *list = NULL;
    write_index("{\"weight_map\": {}}", path);
    ck_assert_ok(tsr_shard_list_open(path, &list));
    ck_assert_int_eq(tsr_shard_list_format(list), TSR_SHARD_INDEX);
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 0);
    tsr_shard_list_destroy(&list);
}
END_TEST

static const struct {
    const char *index;
    tsr_status status;
    const char *text; /* the error text, with %s for the index's path */
} bad_indices[] = {
    {"{\"weight_map\": {\"a\": \"../x.safetensors\"}}", TSR_ERR_INVALID,
     "%s: index: offset 21: parameter 'a': its file '../x.safetensors' is not in the index's "
     "folder"},
    {"{\"weight_map\": {\"a\": \"/etc/x.safetensors\"}}", TSR_ERR_INVALID,
     "%s: index: offset 21: parameter 'a': its file '/etc/x.safetensors' is not in the index's "
     "folder"},
#ifdef _WIN32
    {"{\"weight_map\": {\"a\": \"y\\\\..\\\\..\\\\x.safetensors\"}}", TSR_ERR_INVALID,
     "%s: index: offset 21: parameter 'a': its file 'y\\..\\..\\x.safetensors' is not in the "
     "index's folder"},
#endif
    {"{\"weight_map\": {\"a\": \".x.safetensors\"}}", TSR_ERR_INVALID,
     "%s: index: offset 21: parameter 'a': its file '.x.safetensors' is not in the index's folder"},
    {"{\"weight_map\": {\"a\": \"passwd\"}}", TSR_ERR_INVALID,
     "%s: index: offset 21: parameter 'a': its file 'passwd' does not end in .safetensors"},
    {"{\"weight_map\": {\"a\": \"\"}}", TSR_ERR_INVALID,
     "%s: index: offset 21: parameter 'a': its file's name is empty"},
    {"{\"weight_map\": {\"\": \"part-2.safetensors\"}}", TSR_ERR_INVALID,
     "%s: index: offset 16: a parameter's name is empty"},
    {"{\"weight_map\": {\"a\": 1}}", TSR_ERR_INVALID,
     "%s: index: offset 21: parameter 'a': a string expected, not '1'"},
    {"{\"weight_map\": {\"a\": \"\\u001b.safetensors\"}}", TSR_ERR_INVALID,
     "%s: index: offset 21: parameter 'a': its file's name has a control character"},
    {"{\"weight_map\": []}", TSR_ERR_INVALID, "%s: index: offset 15: an object expected, not '['"},
    {"{\"weight_map\": {\"a\": \"part-2.safetensors\"}}", TSR_ERR_INVALID,
     "%s: index: tensor 'b' of part-2.safetensors is not in the index, or is in two files"},
    {"{\"weight_map\": {\"a\": \"part-2.safetensors\", \"b\": \"part-2.safetensors\", \"c\": "
     "\"part-2.safetensors\"}}",
     TSR_ERR_INVALID, "%s: index: offset 70: its files have no tensor 'c'"},
    {"{\"weight_map\": {\"a\": \"part-2.safetensors\", \"b\": \"part-10.safetensors\", \"c\": "
     "\"part-10.safetensors\"}}",
     TSR_ERR_INVALID, "%s: index: offset 43: tensor 'b' is in another file"},
    {"{\"weight_map\": {\"c\": \"part-10.safetensors\", \"c\": \"part-10.safetensors\"}}",
     TSR_ERR_INVALID, "%s: index: offset 44: parameter 'c' comes twice"},
    {"{\"weight_map\": {\"c\": \"part-10.safetensors\"}, \"weight_map\": {}}", TSR_ERR_INVALID,
     "%s: index: offset 45: \"weight_map\" comes twice"},
};

START_TEST(bad_index)
{
    char path[160];
    write_parts();
    write_index(bad_indices[_i].index, path);
    check_open_fails(path, bad_indices[_i].status, bad_indices[_i].text);
}
END_TEST

START_TEST(files_of_an_index_that_cannot_be_read)
{
    char path[160];
    tsr_shard_list *list = NULL;
    write_index("{\"weight_map\": {\"a\": \"no.safetensors\"}}", path);
    ck_assert_int_eq(tsr_shard_list_open(path, &list), TSR_ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "/no.safetensors: No such file"));
    write_part("bad.safetensors", "{\"a\"}", 0);
    write_index("{\"weight_map\": {\"a\": \"bad.safetensors\"}}", path);
    ck_assert_int_eq(tsr_shard_list_open(path, &list), TSR_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(
        tsr_last_error(), "/bad.safetensors: safetensors: offset 12: ':' expected, not '}'"));
    /* A path without a slash is in the current folder. */
    write_parts();
    write_index("{\"weight_map\": {\"c\": \"part-10.safetensors\"}}", path);
    ck_assert_int_eq(chdir(in.path), 0);
    ck_assert_ok(tsr_shard_list_open("model.safetensors.index.json", &list));
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 1);
    tsr_shard_list_destroy(&list);
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

/* Models in several GGUF files ----------------------------------------------------------------- */

typedef struct gguf_part {
    const char *file;
    int64_t number, count, tensors; /* of the metadata; NONE: without this key */
    const char *name;               /* of its only tensor */
} gguf_part;

enum { PARTS = 3, NONE = INT32_MIN };
#define PART_1 "m-00001-of-00003.gguf"
#define PART_2 "m-00002-of-00003.gguf"
#define PART_3 "m-00003-of-00003.gguf"

/* `architecture` may be NULL: this file does not name it. */
static void write_gguf_part_of(const char *architecture, const gguf_part *part)
{
    enum { STRING = 8, U64 = 10, I32 = 5 };
    const struct {
        const char *key;
        uint32_t type;
        int size;
        int64_t value;
    } keys[] = {{"split.no", U64, 8, part->number},
                {"split.count", U64, 8, part->count},
                {"split.tensors.count", I32, 4, part->tensors}};
    char path[160];
    bytes file = {0};
    uint64_t count = 0;
    for (int i = 0; i < 3; i++)
        count += keys[i].value != NONE;
    put_gguf_head(&file, 3, 1, count + (architecture != NULL));
    if (architecture != NULL) {
        put_text(&file, "general.architecture");
        put_integer(&file, STRING, 4);
        put_text(&file, architecture);
    }
    for (int i = 0; i < 3; i++) {
        if (keys[i].value == NONE)
            continue;
        put_text(&file, keys[i].key);
        put_integer(&file, keys[i].type, 4);
        put_integer(&file, (uint64_t)keys[i].value, keys[i].size);
    }
    put_gguf_tensor(&file, part->name, 3, 1, 0, 0); /* f32 */
    put_zeros(&file, (32 - file.size % 32) % 32 + 12);
    folder_write(&in, part->file, file.data, file.size, path);
    free(file.data);
}

static void write_gguf_part(const gguf_part *part)
{
    write_gguf_part_of(NULL, part);
}

static const gguf_part gguf_parts[PARTS] = {
    {PART_1, 0, 3, 3, "a"}, {PART_2, 1, 3, 3, "c"}, {PART_3, 2, 3, NONE, "b"}};

START_TEST(gguf_files_of_one_model)
{
    char path[160];
    tsr_shard_list *list = NULL;
    for (int i = 0; i < PARTS; i++)
        write_gguf_part(&gguf_parts[i]);
    snprintf(path, sizeof path, "%s/" PART_1, in.path);
    ck_assert_ok(tsr_shard_list_open(path, &list));
    ck_assert_int_eq(tsr_shard_list_format(list), TSR_SHARD_GGUF);
    ck_assert_uint_eq(tsr_shard_list_param_count(list), PARTS);
    const tsr_shard_param *params = tsr_shard_list_param(list, 0);
    for (int i = 0; i < PARTS; i++) {
        ck_assert_str_eq(params[i].name, gguf_parts[i].name);
        ck_assert_str_eq(params[i].file, gguf_parts[i].file);
        ck_assert_uint_eq(params[i].size_bytes, 12);
    }
    tsr_shard_list_destroy(&list);
}
END_TEST

START_TEST(a_gguf_file_that_says_it_is_the_only_one)
{
    char path[160];
    for (int64_t count = 0; count < 2; count++) {
        tsr_shard_list *list = NULL;
        write_gguf_part(&(gguf_part){"any name.gguf", 0, count, 1, "a"});
        snprintf(path, sizeof path, "%s/any name.gguf", in.path);
        ck_assert_ok(tsr_shard_list_open(path, &list));
        ck_assert_uint_eq(tsr_shard_list_param_count(list), 1);
        ck_assert_ptr_null(tsr_shard_list_param(list, 0)->file);
        tsr_shard_list_destroy(&list);
    }
}
END_TEST

static const struct {
    const char *open;
    gguf_part instead[PARTS]; /* replace the usual parts, except entries without a file */
    const char *text;         /* the end of the error text */
} bad_gguf_parts[] = {
    {PART_2,
     {{0}},
     "gguf: this is part 2 of 3 of a model; open the first part, whose name ends in "
     "-00001-of-00003.gguf"},
    {"renamed.gguf",
     {{"renamed.gguf", 0, 3, 3, "a"}},
     "gguf: this is the first of 3 parts of a model, but its name does not end in "
     "-00001-of-00003.gguf, so that the others cannot be found"},
    {PART_1, {{0}, {"m-2.gguf", 1, 3, 3, "c"}}, PART_2 ": No such file or directory"},
    {PART_1,
     {{0}, {PART_2, 2, 3, 3, "c"}},
     "gguf: this is part 3 of 3 of a model, not part 2 of 3"},
    {PART_1,
     {{0}, {PART_2, 1, 4, 3, "c"}},
     "gguf: this is part 2 of 4 of a model, not part 2 of 3"},
    {PART_1,
     {{0}, {PART_2, NONE, NONE, NONE, "c"}},
     "gguf: this is part 1 of 1 of a model, not part 2 of 3"},
    {PART_1,
     {{0}, {PART_2, 1, 3, 4, "c"}},
     "gguf: split.tensors.count is 4, and in the first part 3"},
    {PART_1,
     {{PART_1, 0, 3, 4, "a"}, {PART_2, 1, 3, NONE, "c"}},
     "gguf: split.tensors.count is 4, but the 3 parts have 3 tensors"},
    {PART_1, {{0}, {PART_2, 1, 3, 3, "a"}}, "gguf: tensor 'a' is in two parts"},
    {PART_1, {{PART_1, 0, 100000, 3, "a"}}, "gguf: split.count is 100000; 0 to 99999 is possible"},
    {PART_1, {{PART_1, 0, -1, 3, "a"}}, "not an integer up to 2^63 - 1"},
    {PART_1, {{PART_1, 3, 3, 3, "a"}}, "gguf: split.no is 3, but split.count 3"},
};

START_TEST(bad_gguf_files_of_one_model)
{
    char path[160];
    tsr_shard_list *list = NULL;
    for (int i = 0; i < PARTS; i++) {
        const gguf_part *instead = &bad_gguf_parts[_i].instead[i];
        write_gguf_part(instead->file != NULL ? instead : &gguf_parts[i]);
    }
    snprintf(path, sizeof path, "%s/%s", in.path, bad_gguf_parts[_i].open);
    ck_assert_int_ne(tsr_shard_list_open(path, &list), TSR_OK);
    const char *error = tsr_last_error(), *text = bad_gguf_parts[_i].text;
    ck_assert_msg(strlen(error) > strlen(text) &&
                      strcmp(error + strlen(error) - strlen(text), text) == 0,
                  "%s", error);
    ck_assert_ptr_null(list);
}
END_TEST

START_TEST(a_gguf_part_of_another_architecture)
{
    static const char *const architectures[PARTS] = {"llama", NULL, "qwen2"};
    char path[160], expected[512];
    tsr_shard_list *list = NULL;
    for (int i = 0; i < PARTS; i++)
        write_gguf_part_of(architectures[i], &gguf_parts[i]);
    snprintf(path, sizeof path, "%s/" PART_1, in.path);
    snprintf(expected, sizeof expected,
             "%s: %s/" PART_3
             ": gguf: general.architecture is 'qwen2', and in the first part 'llama'",
             path, in.path);
    ck_assert_error(tsr_shard_list_open(path, &list), TSR_ERR_INVALID, expected);
    ck_assert_ptr_null(list);
    write_gguf_part_of("llama", &gguf_parts[2]);
    ck_assert_ok(tsr_shard_list_open(path, &list));
    tsr_shard_list_destroy(&list);
}
END_TEST

static void any_allocation_may_fail(const char *path, uint64_t least)
{
    uint64_t nth = 0;
    for (bool reached = true; reached; nth++) {
        tsr_shard_list *list = NULL;
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr_shard_list_open(path, &list);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
        ck_assert(reached == (list == NULL));
        tsr_shard_list_destroy(&list);
    }
    ck_assert_uint_gt(nth, least);
}

START_TEST(every_allocation_may_fail)
{
    char path[160];
    write_parts();
    write_index("{\"weight_map\": {\"c\": \"part-10.safetensors\", \"b\": "
                "\"part-2.safetensors\", \"a\": \"part-2.safetensors\"}}",
                path);
    any_allocation_may_fail(path, 30);
    for (int i = 0; i < PARTS; i++)
        write_gguf_part(&gguf_parts[i]);
    snprintf(path, sizeof path, "%s/" PART_1, in.path);
    any_allocation_may_fail(path, 15);
}
END_TEST

/* A model of 70 billion parameters ------------------------------------------------------------- */

typedef struct header {
    char *text;
    size_t used, size;
    uint64_t offset;
} header;

static void put_tensor(header *to, const char *name, int64_t rows, int64_t columns)
{
    uint64_t size = (uint64_t)(rows * (columns > 0 ? columns : 1)) * 2;
    char shape[64];
    snprintf(shape, sizeof shape, columns > 0 ? "%lld,%lld" : "%lld", (long long)rows,
             (long long)columns);
    to->used += (size_t)snprintf(
        to->text + to->used, to->size - to->used,
        "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
        to->used == 0 ? '{' : ',', name, shape, to->offset, to->offset + size);
    to->offset += size;
}

/* Returns the header of a model of 80 layers of size 8192, with hidden size 28672, 8 kv heads and a
 * vocabulary of 32000. */
static header large_header(void)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } layer[] = {
        {"input_layernorm.weight", 8192, 0},          {"mlp.down_proj.weight", 8192, 28672},
        {"mlp.gate_proj.weight", 28672, 8192},        {"mlp.up_proj.weight", 28672, 8192},
        {"post_attention_layernorm.weight", 8192, 0}, {"self_attn.k_proj.weight", 1024, 8192},
        {"self_attn.o_proj.weight", 8192, 8192},      {"self_attn.q_proj.weight", 8192, 8192},
        {"self_attn.v_proj.weight", 1024, 8192},
    };
    header made = {.text = malloc(1 << 20), .size = 1 << 20};
    char name[128];
    put_tensor(&made, "lm_head.weight", 32000, 8192);
    put_tensor(&made, "model.embed_tokens.weight", 32000, 8192);
    for (int i = 0; i < 80; i++)
        for (size_t j = 0; j < COUNT_OF(layer); j++) {
            snprintf(name, sizeof name, "model.layers.%d.%s", i, layer[j].name);
            put_tensor(&made, name, layer[j].rows, layer[j].columns);
        }
    put_tensor(&made, "model.norm.weight", 8192, 0);
    made.text[made.used++] = '}';
    made.text[made.used] = '\0';
    return made;
}

START_TEST(seventy_billion_parameters)
{
    header made = large_header();
    bytes file = safetensors_file(made.text, 0);
    char path[160];
    struct stat info;
    tsr_shard_list *list = NULL;
    folder_write(&in, "large.safetensors", file.data, file.size, path);
    ck_assert_int_eq(truncate(path, (off_t)(file.size + made.offset)), 0);
    ck_assert_int_eq(stat(path, &info), 0);
#ifndef _WIN32
    ck_assert_int_lt(info.st_blocks, 4096); /* the file is sparse */
#endif

    ck_assert_ok(tsr_shard_list_open(path, &list));
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 723);
    static const double rates[] = {1, 1, 1, 1, 2, 2, 2, 2};
    static const uint64_t memory[] = {0, 0, 0, 0, 0, 0, 0, 24000000000};
    for (int kind = 0; kind < 4; kind++) {
        bool weighted = kind == TSR_SHARD_WEIGHTED;
        tsr_shard_plan *plan = plan_of(
            tsr_shard_strategy_params(.kind = (tsr_shard_kind)kind),
            tsr_shard_list_param_count(list), tsr_shard_list_param(list, 0),
            tsr_shard_plan_params(.ranks = 8, .gather = (const char *const[]){"*norm*", NULL},
                                  .rates = weighted ? rates : NULL,
                                  .memory_bytes = weighted ? memory : NULL));
        tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);
        ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
        ck_assert_uint_eq(summary.model_bytes, UINT64_C(137953296384)); /* 68,976,648,192 × 2 */
        ck_assert_uint_eq(summary.gathered_count, 161);
        ck_assert(summary.imbalance >= 1);
        ck_assert(summary.imbalance < (weighted ? 1.2 : 1.1));
        tsr_shard_plan_destroy(&plan);
    }
    tsr_shard_list_destroy(&list);

    /* The file now lacks its last byte, and must be refused. */
    ck_assert_int_eq(truncate(path, (off_t)(file.size + made.offset - 1)), 0);
    check_open_fails(path, TSR_ERR_INVALID,
                     "%s: safetensors: offset 86007: tensor 'model.norm.weight': it ends at byte "
                     "137953296384 of the weights, which have 137953296383");
    free(file.data);
    free(made.text);
}
END_TEST

TESTS(lists)
{
    tcase_add_checked_fixture(tests, create, destroy);
    tcase_add_loop_test(tests, json_lists, 0, (int)COUNT_OF(right));
    tcase_add_test(tests, an_empty_json_list);
    tcase_add_loop_test(tests, invalid_json_lists, 0, (int)COUNT_OF(wrong));
    tcase_add_test(tests, no_prefix_of_json_is_a_list);
    tcase_add_test(tests, formats_are_detected);
    tcase_add_test(tests, files_that_cannot_be_read);
    tcase_add_test(tests, an_index);
    tcase_add_test(tests, an_index_of_nothing);
    tcase_add_loop_test(tests, bad_index, 0, (int)COUNT_OF(bad_indices));
    tcase_add_test(tests, files_of_an_index_that_cannot_be_read);
    tcase_add_test(tests, gguf_files_of_one_model);
    tcase_add_test(tests, a_gguf_file_that_says_it_is_the_only_one);
    tcase_add_loop_test(tests, bad_gguf_files_of_one_model, 0,
                        (int)(sizeof bad_gguf_parts / sizeof *bad_gguf_parts));
    tcase_add_test(tests, a_gguf_part_of_another_architecture);
    tcase_add_test(tests, every_allocation_may_fail);
    tcase_add_test(tests, seventy_billion_parameters);
}
