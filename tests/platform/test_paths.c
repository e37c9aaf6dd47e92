#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/paths.h"
#include "support/check_main.h"

static const char *cache(void)
{
    static char path[300];
    return tsr__path_cache(path, sizeof path) ? path : NULL;
}

#ifdef _WIN32

START_TEST(caches_are_in_the_folder_of_local_data)
{
    unsetenv("XDG_CACHE_HOME");
    setenv("LOCALAPPDATA", "C:\\Users\\J\xc3\xbcrgen\\AppData\\Local", 1);
    ck_assert_str_eq(cache(), "C:/Users/J\xc3\xbcrgen/AppData/Local");
    setenv("LOCALAPPDATA", "AppData\\Local", 1);
    ck_assert_ptr_null(cache());
    unsetenv("LOCALAPPDATA");
    ck_assert_ptr_null(cache());
    setenv("XDG_CACHE_HOME", "D:\\caches", 1);
    ck_assert_str_eq(cache(), "D:/caches");
}
END_TEST

START_TEST(both_slashes_separate_folders)
{
    static const char path[] = "C:\\a/b\\c";
    ck_assert_ptr_eq(tsr__path_last_separator(path), path + 6);
    ck_assert_ptr_eq(tsr__path_last_separator("name"), NULL);
}
END_TEST

START_TEST(roots_are_drives_and_shares)
{
    ck_assert_uint_eq(tsr__path_root("C:\\a"), 3);
    ck_assert_uint_eq(tsr__path_root("z:/"), 3);
    ck_assert_uint_eq(tsr__path_root("\\\\server\\share\\a"), 15);
    ck_assert_uint_eq(tsr__path_root("/a"), 1);
    ck_assert_uint_eq(tsr__path_root("C:a"), 0);
    ck_assert_uint_eq(tsr__path_root("a\\b"), 0);
    ck_assert_uint_eq(tsr__path_root(""), 0);
}
END_TEST

#else

START_TEST(caches_are_in_the_folder_of_the_user)
{
    setenv("XDG_CACHE_HOME", "/caches", 1);
    setenv("HOME", "/home/j", 1);
    ck_assert_str_eq(cache(), "/caches");
    setenv("XDG_CACHE_HOME", "caches", 1);
    ck_assert_str_eq(cache(), "/home/j/.cache");
    unsetenv("XDG_CACHE_HOME");
    ck_assert_str_eq(cache(), "/home/j/.cache");
    setenv("HOME", "here", 1);
    ck_assert_ptr_null(cache());
    unsetenv("HOME");
    ck_assert_ptr_null(cache());
}
END_TEST

START_TEST(only_the_slash_separates_folders)
{
    static const char path[] = "/a/b\\c";
    ck_assert_ptr_eq(tsr__path_last_separator(path), path + 2);
    ck_assert_ptr_eq(tsr__path_last_separator("a\\b"), NULL);
}
END_TEST

START_TEST(the_root_is_a_slash)
{
    ck_assert_uint_eq(tsr__path_root("/a"), 1);
    ck_assert_uint_eq(tsr__path_root("a/b"), 0);
    ck_assert_uint_eq(tsr__path_root(""), 0);
}
END_TEST

#endif

START_TEST(a_path_that_is_too_long_is_none)
{
    setenv("XDG_CACHE_HOME", "/a/local", 1);
    char path[9];
    ck_assert(tsr__path_cache(path, 9));
    ck_assert_uint_eq(strlen(path), 8);
    ck_assert(!tsr__path_cache(path, 8));
}
END_TEST

TESTS(paths)
{
#ifdef _WIN32
    tcase_add_test(tests, caches_are_in_the_folder_of_local_data);
    tcase_add_test(tests, both_slashes_separate_folders);
    tcase_add_test(tests, roots_are_drives_and_shares);
#else
    tcase_add_test(tests, caches_are_in_the_folder_of_the_user);
    tcase_add_test(tests, only_the_slash_separates_folders);
    tcase_add_test(tests, the_root_is_a_slash);
#endif
    tcase_add_test(tests, a_path_that_is_too_long_is_none);
}
