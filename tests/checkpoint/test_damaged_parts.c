/* Checkpoints in parts of which files are missing, damaged, mixed or hostile. One process reads the
 * parts that four ranks have written. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "checkpoint/hosts.h"
#include "comm/ranks.h"
#include "support/random.h"
#include "tessera/checkpoint_files.h"

typedef struct written {
    int version;
    bool skip_checksums;
} written;

static void write_parts(tsr_comm *comm, void *user)
{
    static hosts_model model;
    const written *w = user;
    hosts_model_init(&model, tsr_comm_rank(comm), tsr_comm_size(comm), w->version);
    need_ok(tsr_checkpoint_save(
        on_host("all", "model.safetensors"), comm, NULL, HOSTS_TENSORS, model.entries,
        tsr_checkpoint_params(.parts = true, .skip_checksums = w->skip_checksums)));
}

static void make_parts(int version, bool skip_checksums)
{
    written w = {version, skip_checksums};
    ranks_run(&(ranks_job){.size = 4, .run = write_parts, .user = &w});
}

static hosts_model model;

/* Checks that the call failed with this status and a text that contains some words. Returns whether
 * it did. */
static bool refused(tsr_status status, tsr_status expected, const char *words)
{
    if (status == expected && strstr(tsr_last_error(), words))
        return true;
    fprintf(stderr, "%s: %s\n", tsr_status_name(status), tsr_last_error());
    return false;
}

static tsr_status load(void)
{
    hosts_model_init(&model, 0, 1, 0);
    hosts_model_clear(&model);
    return tsr_checkpoint_load(on_host("all", "model.safetensors.index.json"), NULL, NULL,
                               HOSTS_TENSORS, model.entries, tsr_checkpoint_params(.parts = true));
}

static const char *part(int number)
{
    char name[64];
    snprintf(name, sizeof name, "model-%05d-of-00004.safetensors", number);
    return on_host("all", name);
}

/* Inverts a byte of a file, counted from its end if `at` is negative. */
static void flip(const char *path, int64_t at)
{
    size_t size;
    char *data = read_file(path, &size);
    ck_assert_ptr_nonnull(data);
    data[at < 0 ? (int64_t)size + at : at] ^= 0x10;
    write_file(path, data, size);
    free(data);
}

START_TEST(missing_damaged_or_mixed)
{
    make_parts(1, false);
    hosts_copy("all", "a");
    make_parts(2, false);
    ck_assert_ok(load());
    ck_assert_int_eq(hosts_model_version(&model, 0, 1, 2), 2);

    flip(part(3), -1);
    ck_assert(refused(load(), TSR_ERR_INVALID,
                      "model-00003-of-00004.safetensors: the data of 'columns' are damaged"));
    flip(part(3), -1);
    flip(part(3), 20);
    ck_assert(refused(load(), TSR_ERR_INVALID, "model-00003-of-00004.safetensors: "));

    ck_assert_int_eq(unlink(part(3)), 0);
    ck_assert(refused(load(), TSR_ERR_NOT_FOUND, "part 3 of 4 of checkpoint "));
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), ", generation 2, is not there"));

    size_t size;
    char *old = read_file(on_host("a", "model-00003-of-00004.safetensors"), &size);
    write_file(part(3), old, size);
    free(old);
    ck_assert(refused(load(), TSR_ERR_NOT_FOUND, "; a file has part 3 of checkpoint "));
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), ", generation 1"));

    hosts_empty("all");
    ck_assert(refused(load(), TSR_ERR_NOT_FOUND, "there is no part of this checkpoint"));
}
END_TEST

/* Loads `file` in the folder as one file or an index, and checks the error's text. */
static bool load_undivided_is_refused(const char *file, const char *words)
{
    static const char advice[] = "; this checkpoint was written in parts, one of which is ";
    hosts_model_init(&model, 0, 1, 0);
    if (!refused(tsr_checkpoint_load(on_host("all", file), NULL, NULL, HOSTS_TENSORS, model.entries,
                                     NULL),
                 TSR_ERR_NOT_FOUND, words))
        return false;
    const char *found = strstr(tsr_last_error(), advice);
    return found && strstr(found, "-of-00004.safetensors: read it with `.parts = true`");
}

/* If a checkpoint in parts is loaded as if it were one file, the error says how to load it. */
START_TEST(loaded_without_parts)
{
    char text[16], want[700];
    make_parts(1, false);
    snprintf(want, sizeof want, "cannot open %s: No such file", on_host("all", "model"));
    ck_assert(load_undivided_is_refused("model", want));
    snprintf(want, sizeof want, "cannot open %s: No such", on_host("all", "model.safetensors"));
    ck_assert(load_undivided_is_refused("model.safetensors", want));
    ck_assert(load_undivided_is_refused("model.safetensors.index.json", ": there is no '"));
    ck_assert(refused(
        tsr_checkpoint_metadata(on_host("all", "model"), NULL, NULL, "x", sizeof text, text),
        TSR_ERR_NOT_FOUND, "safetensors: read it with `.parts = true`"));
    ck_assert_int_eq(unlink(part(3)), 0);
    snprintf(want, sizeof want, "cannot open %s: No such file", part(3));
    ck_assert(load_undivided_is_refused("model.safetensors.index.json", want));

    ck_assert(refused(tsr_checkpoint_load(on_host("all", "other"), NULL, NULL, HOSTS_TENSORS,
                                          model.entries, NULL),
                      TSR_ERR_NOT_FOUND, "No such file"));
    ck_assert_ptr_null(strstr(tsr_last_error(), "in parts"));
}
END_TEST

/* Replaces a text in a file by one of the same length. */
static void replace(const char *path, const char *from, const char *to)
{
    size_t size, length = strlen(from);
    char *data = read_file(path, &size);
    ck_assert_ptr_nonnull(data);
    ck_assert_uint_eq(length, strlen(to));
    size_t at = 0;
    while (at + length <= size && memcmp(data + at, from, length) != 0)
        at++;
    ck_assert_msg(at + length <= size, "%s is not in %s", from, path);
    memcpy(data + at, to, length);
    write_file(path, data, size);
    free(data);
}

/* Wrong numbers in the description of a part are refused. */
START_TEST(hostile_descriptions)
{
    static const struct {
        const char *from, *to, *error;
    } cases[] = {
        {"\\\"offset\\\":3", "\\\"offset\\\":2", "the slices of part 1 and part 2 overlap"},
        {"\\\"offset\\\":3", "\\\"offset\\\":4", "no part has elements 3 to 3 along dim 0"},
        {"\\\"offset\\\":3", "\\\"offset\\\":-", "model-00002-of-00004.safetensors: "},
        {"\\\"length\\\":3", "\\\"length\\\":9", "model-00002-of-00004.safetensors: "},
        {"\\\"count\\\":21}", "\\\"count\\\":20}", "does not have the shape of its slice"},
        {"\\\"count\\\":21}", "\\\"count\\\":99}", "are outside a part of 21"},
        {"\\\"first\\\":38", "\\\"first\\\":37", "the slices of part 1 and part 2 overlap"},
        {"\\\"dim\\\":0", "\\\"dim\\\":7", "shard_dim 7 is outside a shape of 2 dimensions"},
        {"\\\"dim\\\":0", "\\\"dim\\\":1", "model-00002-of-00004.safetensors: "},
        {"\\\"shape\\\":[13,7]", "\\\"shape\\\":[14,7]", "'rows' is i32 [13,7] in part 1, and "},
        {"\\\"of\\\":\\\"rows", "\\\"of\\\":\\\"rowx", "no part has elements 3 to 5 along dim 0"},
        {"\\\"tensor\\\":\\\"rows", "\\\"tensor\\\":\\\"rowx", "the file has no 'rowx[3:6]'"},
        {"\\\"part\\\":2", "\\\"part\\\":5", "it is part 5 of 4"},
        {"\\\"part\\\":2", "\\\"part\\\":0", "it is part 0 of 4"},
        {"\\\"part\\\":2", "\\\"part\\\":3", "has two different headers"},
        {"\\\"generation\\\":1", "\\\"generation\\\":0", "a generation of 0"},
        {"{\\\"checkpoint\\\"", "{\\\"checkqoint\\\"", "\"checkqoint\""},
    };
    make_parts(1, true);
    ck_assert_ok(load());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size;
        char *before = read_file(part(2), &size);
        replace(part(2), cases[i].from, cases[i].to);
        const tsr_status status = load();
        ck_assert_msg(status != TSR_OK && strstr(tsr_last_error(), cases[i].error), "%s: %d, %s",
                      cases[i].to, (int)status, tsr_last_error());
        write_file(part(2), before, size);
        free(before);
    }
    ck_assert_ok(load());
}
END_TEST

/* Any change of the header must give an error or other data, but no crash. */
START_TEST(random_headers)
{
    uint64_t state = 11;
    int failures = 0;
    make_parts(1, true);
    size_t size;
    char *before = read_file(part(2), &size), *data = malloc(size);
    ck_assert_ptr_nonnull(data);
    for (int round = 0; round < 400; round++) {
        memcpy(data, before, size);
        for (int64_t n = random_between(&state, 1, 3); n > 0; n--)
            data[random_between(&state, 0, (int64_t)size * 3 / 4)] =
                (char)random_between(&state, 0, 255);
        write_file(part(2), data, size);
        failures += load() != TSR_OK;
    }
    ck_assert_int_gt(failures, 200);
    free(data);
    free(before);
}
END_TEST

/* Saves a checkpoint in one process. */
static tsr_status save_alone(int version)
{
    hosts_model_init(&model, 0, 1, version);
    return tsr_checkpoint_save(on_host("all", "model"), NULL, NULL, HOSTS_TENSORS, model.entries,
                               tsr_checkpoint_params(.parts = true));
}

START_TEST(every_allocation_fails_in_turn)
{
    int version = 0;
    ck_assert_ok(save_alone(version));
    for (uint64_t nth = 0;; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = save_alone(version + 1);
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        /* If memory runs out after the new checkpoint is complete, saving may succeed, and old
         * files may stay. */
        ck_assert(status == TSR_OK || (reached && status == TSR_ERR_NO_MEMORY));
        if (!reached)
            break;
        version += status == TSR_OK;
        ck_assert_ok(load());
        ck_assert_int_eq(hosts_model_version(&model, 0, 1, version + 1), version);
    }
    for (uint64_t nth = 0;; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = load();
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
        if (!reached)
            break;
    }
}
END_TEST

static tsr_status merge(void)
{
    tsr_checkpoint_files *files = NULL;
    tsr_status status = tsr_checkpoint_files_open(
        2, (const char *const[]){on_host("a", "model"), on_host("all", "model")}, &files);
    if (status == TSR_OK)
        status = tsr_checkpoint_files_verify(files);
    if (status == TSR_OK)
        status = tsr_checkpoint_files_merge(files, on_host("b", "whole"));
    tsr_checkpoint_files_close(&files);
    ck_assert_ptr_null(files);
    return status;
}

/* Allocations and system calls of merging fail in turn. At every time, a file with the final
 * name must be complete. */
START_TEST(merging_fails)
{
    make_parts(1, false);
    hosts_copy("all", "a"); /* each part is in two folders */
    for (int kind = 0; kind < 2; kind++) {
        for (uint64_t nth = 0;; nth++) {
            tsr__fault_arm(kind == 0 ? TSR__FAULT_ALLOC : TSR__FAULT_IO, nth, ENOSPC);
            const tsr_status status = merge();
            const char *site = tsr__fault_site();
            tsr__fault_disarm();
            ck_assert_int_eq(status, !site ? TSR_OK : kind == 0 ? TSR_ERR_NO_MEMORY : TSR_ERR_IO);
            if (!site)
                break;
            ck_assert_int_eq(hosts_files("b"), strstr(site, "folder") != NULL);
            hosts_empty("b");
        }
        hosts_model_init(&model, 0, 1, 0);
        hosts_model_clear(&model);
        ck_assert_ok(tsr_checkpoint_load(on_host("b", "whole"), NULL, NULL, HOSTS_TENSORS,
                                         model.entries, NULL));
        ck_assert_int_eq(hosts_model_version(&model, 0, 1, 1), 1);
        hosts_empty("b");
    }
}
END_TEST

/* A slice has a text such as "[3:6]" or ".flat[38:76]", unless it is all of the tensor. */
static void check_text(const tsr_checkpoint_tensor *tensor, const tsr_checkpoint_slice *slice)
{
    const bool full = tensor->slice_count == 1;
    ck_assert_msg((slice->text[0] == '\0') == full, "%s%s has %llu slices", tensor->name,
                  slice->text, (unsigned long long)tensor->slice_count);
    ck_assert(full || (strchr(slice->text, '[') && strchr(slice->text, ']')));
}

/* Parts, tensors and slices are read by index; each tensor's slices have all its elements. */
START_TEST(by_index)
{
    make_parts(1, false);
    tsr_checkpoint_files *files = NULL;
    ck_assert_ok(
        tsr_checkpoint_files_open(1, (const char *const[]){on_host("all", "model")}, &files));
    const tsr_checkpoint_summary *summary = tsr_checkpoint_files_summary(files);
    ck_assert_int_eq(summary->part_count, 4);
    ck_assert_uint_eq(summary->tensor_count, HOSTS_TENSORS);
    uint64_t in_parts = 0, in_tensors = 0;
    for (int i = 0; i < 4; i++) {
        const tsr_checkpoint_part *one = tsr_checkpoint_files_part(files, i);
        ck_assert_str_eq(one->path, part(i + 1));
        in_parts += one->slice_count;
    }
    for (uint64_t i = 0; i < HOSTS_TENSORS; i++) {
        const tsr_checkpoint_tensor *tensor = tsr_checkpoint_files_tensor(files, i);
        tsr_checkpoint_slice slice = TSR_INIT(tsr_checkpoint_slice);
        uint64_t elements = 1, counted = 0;
        for (int d = 0; d < tensor->ndim; d++)
            elements *= (uint64_t)tensor->shape[d];
        for (uint64_t j = 0; j < tensor->slice_count; j++) {
            ck_assert_ok(tsr_checkpoint_files_get_slice(files, i, j, &slice));
            check_text(tensor, &slice);
            counted += slice.count;
        }
        ck_assert_uint_eq(counted, elements);
        in_tensors += tensor->slice_count;
    }
    ck_assert_uint_eq(in_parts, in_tensors);
    ck_assert_ptr_null(tsr_checkpoint_files_part(files, -1));
    ck_assert_ptr_null(tsr_checkpoint_files_part(files, 4));
    ck_assert_ptr_null(tsr_checkpoint_files_part(NULL, 0));
    ck_assert_ptr_null(tsr_checkpoint_files_tensor(files, HOSTS_TENSORS));
    ck_assert_ptr_null(tsr_checkpoint_files_tensor(NULL, 0));
    tsr_checkpoint_files_close(&files);
}
END_TEST

START_TEST(wrong_slices)
{
    static const char function[] = "checkpoint_files_get_slice: ";
    char want[256];
    make_parts(1, false);
    tsr_checkpoint_files *files = NULL;
    tsr_checkpoint_slice slice = TSR_INIT(tsr_checkpoint_slice);
    ck_assert_ok(
        tsr_checkpoint_files_open(1, (const char *const[]){on_host("all", "model")}, &files));
    const tsr_checkpoint_tensor *first = tsr_checkpoint_files_tensor(files, 0);
    const unsigned long long count = first->slice_count;
    snprintf(want, sizeof want, "%sfiles is NULL", function);
    ck_assert_error(tsr_checkpoint_files_get_slice(NULL, 0, 0, &slice), TSR_ERR_INVALID, want);
    snprintf(want, sizeof want, "%sout is NULL", function);
    ck_assert_error(tsr_checkpoint_files_get_slice(files, 0, 0, NULL), TSR_ERR_INVALID, want);
    snprintf(want, sizeof want, "%sthere is no tensor 7; there are 7", function);
    ck_assert_error(tsr_checkpoint_files_get_slice(files, 7, 0, &slice), TSR_ERR_INVALID, want);
    snprintf(want, sizeof want, "%sthere is no slice %llu of %s; there are %llu", function, count,
             first->name, count);
    ck_assert_error(tsr_checkpoint_files_get_slice(files, 0, count, &slice), TSR_ERR_INVALID, want);
    slice.struct_size = 0;
    ck_assert(refused(tsr_checkpoint_files_get_slice(files, 0, 0, &slice), TSR_ERR_INVALID,
                      "tsr_checkpoint_slice"));
    /* A program with older headers has a shorter struct: nothing is written beyond it. */
    slice.struct_size = offsetof(tsr_checkpoint_slice, count);
    slice.count = 12345;
    ck_assert_ok(tsr_checkpoint_files_get_slice(files, 0, 0, &slice));
    ck_assert_uint_eq(slice.count, 12345);
    ck_assert_int_gt(slice.length, 0);
    tsr_checkpoint_files_close(&files);
}
END_TEST

START_TEST(mistakes_of_the_caller)
{
    hosts_model_init(&model, 0, 1, 0);
    const char *const taken[] = {"tessera.part", "x", NULL};
    ck_assert_error(
        tsr_checkpoint_save(on_host("all", "model"), NULL, NULL, HOSTS_TENSORS, model.entries,
                            tsr_checkpoint_params(.metadata = taken, .parts = true)),
        TSR_ERR_INVALID, "checkpoint_save: the metadata 'tessera.part' is written by the library");
    ck_assert(refused(tsr_checkpoint_save(on_host("all", ".safetensors"), NULL, NULL, HOSTS_TENSORS,
                                          model.entries, tsr_checkpoint_params(.parts = true)),
                      TSR_ERR_INVALID, "has no name for the parts of a checkpoint"));
    ck_assert(refused(tsr_checkpoint_save(on_host("none", "model"), NULL, NULL, HOSTS_TENSORS,
                                          model.entries, tsr_checkpoint_params(.parts = true)),
                      TSR_ERR_NOT_FOUND, "checkpoint_save: cannot create "));
    static char name[TSR_SHARD_MAX_NAME + 1];
    memset(name, 'n', sizeof name - 1);
    tsr_checkpoint_entry entry = model.entries[0];
    entry.name = name;
    ck_assert_ok(tsr_checkpoint_save(on_host("all", "long"), NULL, NULL, 1, &entry,
                                     tsr_checkpoint_params(.parts = true)));
    char text[8];
    tsr_checkpoint_files *files = NULL;
    ck_assert(refused(tsr_checkpoint_files_open(0, NULL, &files), TSR_ERR_INVALID,
                      "checkpoint_files_open: there are no paths"));
    ck_assert(refused(tsr_checkpoint_files_open(1, (const char *const[]){NULL}, &files),
                      TSR_ERR_INVALID, "checkpoint_files_open: a path is NULL"));
    ck_assert(refused(tsr_checkpoint_files_verify(NULL), TSR_ERR_INVALID, "files is NULL"));
    ck_assert_ptr_null(tsr_checkpoint_files_summary(NULL));
    ck_assert(refused(tsr_checkpoint_metadata(on_host("all", "long"), NULL,
                                              tsr_checkpoint_params(.parts = true), "epoch",
                                              sizeof text, text),
                      TSR_ERR_NOT_FOUND, "long: there is no 'epoch'"));
    ck_assert_error(tsr_checkpoint_metadata(NULL, NULL, tsr_checkpoint_params(.parts = true),
                                            "epoch", sizeof text, text),
                    TSR_ERR_INVALID, "checkpoint_metadata: path is NULL");
}
END_TEST

TESTS(damaged_parts)
{
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, hosts_make, hosts_remove);
    tcase_add_test(tests, missing_damaged_or_mixed);
    tcase_add_test(tests, loaded_without_parts);
    tcase_add_test(tests, hostile_descriptions);
    tcase_add_test(tests, random_headers);
    tcase_add_test(tests, every_allocation_fails_in_turn);
    tcase_add_test(tests, merging_fails);
    tcase_add_test(tests, by_index);
    tcase_add_test(tests, wrong_slices);
    tcase_add_test(tests, mistakes_of_the_caller);
}
