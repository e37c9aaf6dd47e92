/* Tests output files that are replaced atomically. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/lib/output.h"
#include "support/check_main.h"

static char folder[32], path[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/tessera-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a", folder);
}

/* Removes the folder. Fails if it contains anything but `path`. */
static void remove_folder(void)
{
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static void write_text(const char *to, const char *text)
{
    cli_output output;
    ck_assert(cli_output_begin(to, &output));
    fputs(text, output.file);
    ck_assert(cli_output_end(&output));
}

static void has_text(const char *text)
{
    char found[64] = "";
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fread(found, 1, sizeof found - 1, file), strlen(text));
    ck_assert_str_eq(found, text);
    fclose(file);
}

START_TEST(replaces_the_file_at_the_end)
{
    cli_output output;
    write_text(path, "old");
    ck_assert(cli_output_begin(path, &output));
    fputs("new", output.file);
    fflush(output.file);
    has_text("old");
    ck_assert(cli_output_end(&output));
    has_text("new");
}
END_TEST

/* cli_output_end_new() must not replace a file. It must also remove its temporary file, which
 * remove_folder() checks. */
START_TEST(a_new_file_replaces_nothing)
{
    cli_output output;
    ck_assert(cli_output_begin(path, &output));
    fputs("new", output.file);
    ck_assert(cli_output_end_new(&output));
    has_text("new");
    ck_assert(cli_output_begin(path, &output));
    fputs("newer", output.file);
    ck_assert(!cli_output_end_new(&output));
    ck_assert_int_eq(errno, EEXIST);
    has_text("new");
    ck_assert(cli_output_begin("/dev/null", &output));
    ck_assert(!cli_output_end_new(&output));
    ck_assert_int_eq(errno, EEXIST);
}
END_TEST

START_TEST(keeps_the_mode_or_uses_the_default)
{
    struct stat status;
    umask(027);
    write_text(path, "a");
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq((int)(status.st_mode & 0777), 0640);
    ck_assert_int_eq(chmod(path, 0604), 0);
    write_text(path, "b");
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq((int)(status.st_mode & 0777), 0604);
}
END_TEST

START_TEST(a_link_stays_a_link)
{
    struct stat status;
    char link[64];
    snprintf(link, sizeof link, "%s/link", folder);
    write_text(path, "old");
    ck_assert_int_eq(symlink(path, link), 0);
    write_text(link, "new");
    has_text("new");
    ck_assert_int_eq(lstat(link, &status), 0);
    ck_assert(S_ISLNK(status.st_mode));
    unlink(link);
}
END_TEST

START_TEST(checking_changes_nothing)
{
    ck_assert(cli_output_possible(path));
    ck_assert_int_eq(access(path, F_OK), -1);
    write_text(path, "old");
    ck_assert(cli_output_possible(path));
    has_text("old");
    ck_assert(cli_output_possible("/dev/null"));
}
END_TEST

static const struct {
    const char *path;
    int reason;
} impossible[] = {
    {"", ENOENT}, {"/proc/nonexistent/a", ENOENT}, {"/tmp", EISDIR}, {"/dev/null/a", ENOTDIR}};

START_TEST(impossible_paths_have_a_reason)
{
    cli_output output;
    ck_assert(!cli_output_possible(impossible[_i].path));
    ck_assert_int_eq(errno, impossible[_i].reason);
    ck_assert(!cli_output_begin(impossible[_i].path, &output));
    ck_assert_int_eq(errno, impossible[_i].reason);
}
END_TEST

START_TEST(a_device_is_written_directly)
{
    cli_output output;
    write_text("/dev/null", "a");
    ck_assert(cli_output_possible("/dev/full"));
    ck_assert(cli_output_begin("/dev/full", &output));
    fputs("a", output.file);
    ck_assert(!cli_output_end(&output));
    ck_assert_int_eq(errno, ENOSPC);
}
END_TEST

/* If the disk is full, the file stays unchanged, and no other file is left. */
START_TEST(a_failure_leaves_the_old_file)
{
    cli_output output;
    write_text(path, "old");
    ck_assert(cli_output_begin(path, &output));
    ck_assert_ptr_nonnull(freopen("/dev/full", "w", output.file));
    fputs("new", output.file);
    ck_assert(!cli_output_end(&output));
    ck_assert_int_eq(errno, ENOSPC);
    has_text("old");
}
END_TEST

START_TEST(recognises_a_file_under_any_name)
{
    char link_name[64], other[64];
    snprintf(link_name, sizeof link_name, "%s/link", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    ck_assert(!cli_output_is(path, path));
    write_text(path, "a");
    write_text(other, "a");
    ck_assert_int_eq(symlink(path, link_name), 0);
    ck_assert(cli_output_is(path, path));
    ck_assert(cli_output_is(link_name, path));
    ck_assert(cli_output_is(path, link_name));
    ck_assert(!cli_output_is(other, path));
    ck_assert(!cli_output_is("/dev/null", "/dev/null"));
    ck_assert(cli_output_is_standard("-"));
    ck_assert(!cli_output_is_standard("./-"));
    unlink(link_name);
    unlink(other);
}
END_TEST

TESTS(output)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, replaces_the_file_at_the_end);
    tcase_add_test(tests, a_new_file_replaces_nothing);
    tcase_add_test(tests, keeps_the_mode_or_uses_the_default);
    tcase_add_test(tests, a_link_stays_a_link);
    tcase_add_test(tests, checking_changes_nothing);
    tcase_add_loop_test(tests, impossible_paths_have_a_reason, 0,
                        (int)(sizeof impossible / sizeof *impossible));
    tcase_add_test(tests, a_device_is_written_directly);
    tcase_add_test(tests, a_failure_leaves_the_old_file);
    tcase_add_test(tests, recognises_a_file_under_any_name);
}
