/* Reads models that are divided into several GGUF files, called file parts, as llama.cpp's
 * gguf-split writes them: NAME-00001-of-00003.gguf and so on. The metadata split.count is the
 * number of file parts, split.no the number of this one from 0, and split.tensors.count the number
 * of tensors of all of them. The other metadata are in the first file part only. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "platform/paths.h"
#include "shard/formats/gguf_metadata.h"
#include "shard/formats/readers.h"
#include "json/text_check.h"

#define MAX_FILE_PARTS 99999 /* names have five digits */
#define MAX_ENDING 64
#define MAX_PATH 4096

typedef struct file_part {
    int64_t number, count;
    int64_t tensors; /* number of tensors in all file parts; -1: the file does not say */
    char architecture[TSR_SHARD_MAX_NAME + 1]; /* "": the file does not say */
} file_part;

/* Reads which part of a model a file is, whose keys these are. */
static tsr_status read_file_part(tsr__file *file, const tsr__gguf_keys *keys, file_part *out)
{
    tsr__gguf_value values[] = {{.key = "split.no"},
                                {.key = "split.count"},
                                {.key = "split.tensors.count"},
                                {.key = "general.architecture"}};
    *out = (file_part){.number = 0, .count = 1, .tensors = -1};
    TSR__TRY(tsr__gguf_look_up(file, keys, values, sizeof values / sizeof *values));
    if (!values[1].found)
        return TSR_OK;
    TSR__TRY(tsr__gguf_integer(file, &values[1], &out->count));
    if (values[0].found)
        TSR__TRY(tsr__gguf_integer(file, &values[0], &out->number));
    if (values[2].found)
        TSR__TRY(tsr__gguf_integer(file, &values[2], &out->tensors));
    if (values[3].found)
        TSR__TRY(tsr__gguf_name_of(file, &values[3], out->architecture));
    TSR__REQUIRE(out->count >= 0 && out->count <= MAX_FILE_PARTS,
                 "gguf: split.count is %" PRId64 "; 0 to %d is possible", out->count,
                 MAX_FILE_PARTS);
    if (out->count == 0) /* split.count is 0 in a model that is not split */
        out->count = 1;
    TSR__REQUIRE(out->number >= 0 && out->number < out->count,
                 "gguf: split.no is %" PRId64 ", but split.count %" PRId64, out->number,
                 out->count);
    return TSR_OK;
}

static void print_ending(char ending[MAX_ENDING], int64_t number, int64_t count)
{
    snprintf(ending, MAX_ENDING, "-%05" PRId64 "-of-%05" PRId64 ".gguf", number + 1, count);
}

/* Checks that `path` is the first file part. Sets *stem to the length of the path without its
 * ending,
 * "-00001-of-00003.gguf". */
static tsr_status check_first(const char *path, const file_part *first, size_t *stem)
{
    char ending[MAX_ENDING], first_ending[MAX_ENDING];
    const size_t length = strlen(path);
    print_ending(first_ending, 0, first->count);
    TSR__REQUIRE(first->number == 0,
                 "gguf: this is part %" PRId64 " of %" PRId64
                 " of a model; open the first part, whose name ends in %s",
                 first->number + 1, first->count, first_ending);
    print_ending(ending, first->number, first->count);
    const size_t end = strlen(ending);
    TSR__REQUIRE(length >= end && strcmp(path + length - end, ending) == 0,
                 "gguf: this is the first of %" PRId64
                 " parts of a model, but its name does not end in %s, so that the others cannot be "
                 "found",
                 first->count, ending);
    *stem = length - end;
    return TSR_OK;
}

/* Appends the tensors of a file part to `params`. Each of them stores `name`, the name of the file.
 */
static tsr_status add_tensors_of_part(const tsr__params *of_part, const char *name,
                                      tsr__params *params)
{
    for (size_t i = 0; i < of_part->count; i++) {
        tsr_shard_param param = of_part->items[i];
        param.file = name;
        TSR__TRY(tsr__params_add(params, &param));
    }
    return TSR_OK;
}

/* Checks that a file part belongs to the same model as the first one. gguf-split itself writes the
 * architecture to the first file part only. */
static tsr_status check_same_model(const file_part *first, int64_t number, const file_part *found)
{
    char shown[TSR__NAME_SHORT], first_shown[TSR__NAME_SHORT];
    TSR__REQUIRE(found->number == number && found->count == first->count,
                 "gguf: this is part %" PRId64 " of %" PRId64 " of a model, not part %" PRId64
                 " of %" PRId64,
                 found->number + 1, found->count, number + 1, first->count);
    TSR__REQUIRE(found->tensors < 0 || first->tensors < 0 || found->tensors == first->tensors,
                 "gguf: split.tensors.count is %" PRId64 ", and in the first part %" PRId64,
                 found->tensors, first->tensors);
    TSR__REQUIRE(!*found->architecture || !*first->architecture ||
                     strcmp(found->architecture, first->architecture) == 0,
                 "gguf: general.architecture is '%s', and in the first part '%s'",
                 tsr__name_short(found->architecture, shown),
                 tsr__name_short(first->architecture, first_shown));
    return TSR_OK;
}

static tsr_status read_other_part(const char *path, const char *name, int64_t number,
                                  const file_part *first, tsr__params *params)
{
    tsr__file file;
    tsr__params of_part = {0};
    tsr__gguf_keys keys = {0};
    file_part found;
    TSR__TRY(tsr__file_open(path, &file));
    tsr_status status = tsr__read_gguf(&file, &of_part, &keys);
    if (status == TSR_OK)
        status = read_file_part(&file, &keys, &found);
    if (status == TSR_OK)
        status = check_same_model(first, number, &found);
    if (status == TSR_OK)
        status = add_tensors_of_part(&of_part, name, params);
    tsr__params_finish(&of_part);
    tsr__gguf_keys_finish(&keys);
    tsr__file_close(&file);
    return status == TSR_OK || status == TSR_ERR_NO_MEMORY ? status
                                                           : tsr__fail_context(status, "%s", path);
}

/* Checks that no tensor is in two file parts, and that all file parts together have as many tensors
 * as the first one says. */
static tsr_status check_tensors(const file_part *first, const tsr__params *params)
{
    tsr__param_name *names = NULL;
    char shown[TSR__NAME_SHORT];
    TSR__REQUIRE(first->tensors < 0 || (uint64_t)first->tensors == params->count,
                 "gguf: split.tensors.count is %" PRId64 ", but the %" PRId64
                 " parts have %zu tensors",
                 first->tensors, first->count, params->count);
    TSR__TRY(tsr__params_sort(params, &names));
    tsr_status status = TSR_OK;
    for (size_t i = 1; i < params->count && status == TSR_OK; i++)
        if (strcmp(names[i - 1].name, names[i].name) == 0)
            status = tsr__fail(TSR_ERR_INVALID, "gguf: tensor '%s' is in two parts",
                               tsr__name_short(names[i].name, shown));
    tsr__free(names);
    return status;
}

/* Reads the other file parts. of_first are the tensors of the first one. */
static tsr_status read_file_parts(const char *path, const tsr__params *of_first,
                                  const file_part *first, tsr__params *params)
{
    char other[MAX_PATH], ending[MAX_ENDING];
    size_t stem = 0;
    TSR__TRY(check_first(path, first, &stem));
    TSR__REQUIRE(strlen(path) < sizeof other, "gguf: its path has %zu bytes, more than %zu",
                 strlen(path), sizeof other - 1);
    memcpy(other, path, strlen(path) + 1);
    const char *slash = tsr__path_last_separator(other);
    const char *name = slash != NULL ? slash + 1 : other;
    TSR__TRY(add_tensors_of_part(of_first, name, params));
    for (int64_t number = 1; number < first->count; number++) {
        print_ending(ending, number, first->count);
        memcpy(other + stem, ending, strlen(ending) + 1); /* all endings are equally long */
        TSR__TRY(read_other_part(other, name, number, first, params));
    }
    return check_tensors(first, params);
}

tsr_status tsr__read_gguf_files(const char *path, tsr__file *file, tsr__params *params,
                                tsr__gguf_keys *keys)
{
    file_part first;
    TSR__TRY(tsr__read_gguf(file, params, keys));
    TSR__TRY(read_file_part(file, keys, &first));
    if (first.count == 1)
        return TSR_OK;
    tsr__params of_first = *params;
    *params = (tsr__params){0};
    const tsr_status status = read_file_parts(path, &of_first, &first, params);
    tsr__params_finish(&of_first);
    return status;
}
