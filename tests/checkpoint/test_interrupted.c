/* If saving does not complete, the previous file must stay. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "checkpoint/folder.h"
#include "support/random.h"

#define COUNT 100000

/* Saves a checkpoint in which every element and the metadata are `version`. */
static tsr_status save_version(int32_t version)
{
    static int32_t a[COUNT], b[COUNT / 2];
    for (int i = 0; i < COUNT; i++)
        a[i] = b[i / 2] = version;
    char text[16];
    snprintf(text, sizeof text, "%d", (int)version);
    tsr_checkpoint_entry entries[] = {
        host_entry("a", TSR_I32, 1, (int64_t[]){COUNT}, a),
        host_entry("b", TSR_I32, 2, (int64_t[]){2, COUNT / 4}, b),
    };
    return tsr_checkpoint_save(
        in_folder("model"), NULL, NULL, 2, entries,
        tsr_checkpoint_params(.metadata = (const char *[]){"version", text, NULL}));
}

/* Checks that the checkpoint is complete, and returns its version. */
static int32_t whole_version(void)
{
    static int32_t a[COUNT], b[COUNT / 2];
    char text[16];
    tsr_checkpoint_entry entries[] = {
        host_entry("a", TSR_I32, 1, (int64_t[]){COUNT}, a),
        host_entry("b", TSR_I32, 2, (int64_t[]){2, COUNT / 4}, b),
    };
    ck_assert_ok(tsr_checkpoint_load(in_folder("model"), NULL, NULL, 2, entries, NULL));
    ck_assert_ok(
        tsr_checkpoint_metadata(in_folder("model"), NULL, NULL, "version", sizeof text, text));
    int32_t version = a[0];
    ck_assert_int_eq(atoi(text), version);
    for (int i = 0; i < COUNT; i++)
        ck_assert(a[i] == version && b[i / 2] == version);
    return version;
}

/* Each system call of saving fails in turn. Afterwards the folder must have only the old file,
 * or only the new one if just the synchronisation of the folder failed. */
START_TEST(every_call_fails_in_turn)
{
    ck_assert_ok(save_version(1));
    int32_t before = 1, next = 2;
    int failures = 0;
    for (uint64_t nth = 0;; nth++) {
        tsr__fault_arm(TSR__FAULT_IO, nth, ENOSPC);
        tsr_status status = save_version(next);
        const char *site = tsr__fault_site();
        tsr__fault_disarm();
        if (!site) {
            ck_assert_int_eq(status, TSR_OK);
            ck_assert_int_eq(whole_version(), next);
            break;
        }
        failures++;
        ck_assert_int_eq(status, TSR_ERR_IO);
        ck_assert_ptr_nonnull(strstr(tsr_last_error(), "No space left on device"));
        bool named = strstr(site, "folder") != NULL;
        ck_assert_int_eq(whole_version(), named ? next : before);
        ck_assert_int_eq(files_in_folder(), 1);
        if (named)
            before = next;
        next++;
    }
    ck_assert_int_ge(failures, 8); /* create, allocate, header, a, b, fsync, rename, folder */
}
END_TEST

START_TEST(every_allocation_fails_in_turn)
{
    ck_assert_ok(save_version(1));
    for (uint64_t nth = 0;; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = save_version(2);
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        if (!reached)
            break;
        ck_assert_int_eq(status, TSR_ERR_NO_MEMORY);
        ck_assert_int_eq(whole_version(), 1);
        ck_assert_int_eq(files_in_folder(), 1);
    }
    ck_assert_int_eq(whole_version(), 2);
    static int32_t a[COUNT];
    tsr_checkpoint_entry entry = host_entry("a", TSR_I32, 1, (int64_t[]){COUNT}, a);
    char text[8];
    for (uint64_t nth = 0;; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr_checkpoint_load(in_folder("model"), NULL, NULL, 1, &entry, NULL);
        if (status == TSR_OK)
            status = tsr_checkpoint_metadata(in_folder("model"), NULL, NULL, "version", 8, text);
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        if (!reached) {
            ck_assert_int_eq(status, TSR_OK);
            break;
        }
        ck_assert_int_eq(status, TSR_ERR_NO_MEMORY);
    }
}
END_TEST

static void nap(int64_t us)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

/* A process that saves in an endless loop is killed at random moments; later ones if none has had
 * the time to save. */
START_TEST(killed_at_random_moments)
{
    uint64_t state = (uint64_t)getpid();
    ck_assert_ok(save_version(0));
    int32_t last = 0;
    int changed = 0;
    for (int round = 0; round < 60; round++) {
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            for (int32_t version = last + 1;; version++)
                if (save_version(version) != TSR_OK)
                    _exit(EXIT_FAILURE);
        }
        nap(random_between(&state, 0, changed > 0 ? 20000 : 20000 << round / 10));
        kill(child, SIGKILL);
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status));
        int32_t version = whole_version();
        ck_assert_int_ge(version, last);
        ck_assert_int_le(files_in_folder(), 2);
        changed += version != last;
        last = version;
    }
    ck_assert_ok(save_version(last + 1)); /* replaces what the last process left behind */
    ck_assert_int_eq(whole_version(), last + 1);
    ck_assert_int_eq(files_in_folder(), 1);
    ck_assert_msg(changed > 0, "no process was quick enough to save anything");
}
END_TEST

/* The file that saving writes first must not be written through a symbolic link of that name. */
START_TEST(a_link_as_partial_file)
{
    write_file(in_folder("victim"), "mine", 4);
    ck_assert_int_eq(symlink(in_folder("victim"), in_folder("model.partial")), 0);
    ck_assert_ok(save_version(4));
    ck_assert_int_eq(whole_version(), 4);
    size_t size;
    char *victim = read_file(in_folder("victim"), &size);
    ck_assert_uint_eq(size, 4);
    ck_assert_mem_eq(victim, "mine", 4);
    free(victim);
}
END_TEST

/* If the path is a link to a checkpoint, the link stays, and the checkpoint is replaced. */
START_TEST(the_path_is_a_link)
{
    struct stat info;
    ck_assert_int_eq(mkdir(in_folder("elsewhere"), 0777), 0);
    ck_assert_int_eq(symlink("elsewhere/file", in_folder("model")), 0);
    ck_assert_int_eq(save_version(5), TSR_ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "checkpoint_save: cannot follow "));
    write_file(in_folder("elsewhere/file"), "old", 3);
    ck_assert_ok(save_version(6));
    ck_assert_int_eq(whole_version(), 6);
    ck_assert_int_eq(lstat(in_folder("model"), &info), 0);
    ck_assert(S_ISLNK(info.st_mode));
    ck_assert_int_eq(unlink(in_folder("elsewhere/file")), 0);
    ck_assert_int_eq(rmdir(in_folder("elsewhere")), 0);
}
END_TEST

/* A path that is not a regular file, such as /dev/null, must not be replaced. */
START_TEST(only_regular_files_are_replaced)
{
    struct stat before, after;
    for (int i = 0; i < 3; i++) {
        const char *path = in_folder("model");
        ck_assert_int_eq(i == 0   ? mkfifo(path, 0666)
                         : i == 1 ? mkdir(path, 0777)
                                  : symlink("/dev/null", path),
                         0);
        ck_assert_int_eq(stat(path, &before), 0);
        ck_assert_int_eq(save_version(7), TSR_ERR_IO);
        ck_assert_ptr_nonnull(strstr(tsr_last_error(), "/model is not a regular file"));
        ck_assert_int_eq(stat(path, &after), 0);
        ck_assert(before.st_ino == after.st_ino && before.st_dev == after.st_dev);
        ck_assert_int_eq(remove(path), 0);
    }
}
END_TEST

TESTS(interrupted)
{
    tcase_add_checked_fixture(tests, folder_make, folder_remove);
    tcase_add_test(tests, every_call_fails_in_turn);
    tcase_add_test(tests, every_allocation_fails_in_turn);
    tcase_add_test(tests, killed_at_random_moments);
    tcase_add_test(tests, a_link_as_partial_file);
    tcase_add_test(tests, the_path_is_a_link);
    tcase_add_test(tests, only_regular_files_are_replaced);
}
