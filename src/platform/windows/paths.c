/* Implements POSIX's functions on names of files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <windows.h>

#include "platform/windows/utf16.h"

/* Calls a function of Windows with a path, converted to UTF-16. Returns 0, or -1 with errno set. */
static int with_path(const char *path, BOOL(WINAPI *function)(const wchar_t *))
{
    wchar_t *wide = tsr__windows_wide(path);
    if (!wide)
        return -1;
    const BOOL done = function(wide);
    const int result = done ? 0 : tsr__windows_fail();
    free(wide);
    return result;
}

static BOOL WINAPI create_folder(const wchar_t *path)
{
    return CreateDirectoryW(path, NULL);
}

/* Also removes read-only files, which DeleteFile refuses: on POSIX only the permissions of the
 * folder matter. */
static BOOL WINAPI delete_file(const wchar_t *path)
{
    const DWORD attributes = GetFileAttributesW(path);
    if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_READONLY) != 0 &&
        (attributes & FILE_ATTRIBUTE_DIRECTORY) == 0)
        SetFileAttributesW(path, attributes & ~(DWORD)FILE_ATTRIBUTE_READONLY);
    return DeleteFileW(path);
}

int tsr__windows_mkdir(const char *path, int mode)
{
    (void)mode;
    return with_path(path, create_folder);
}

int tsr__windows_rmdir(const char *path)
{
    return with_path(path, RemoveDirectoryW);
}

int tsr__windows_unlink(const char *path)
{
    return with_path(path, delete_file);
}

int tsr__windows_chdir(const char *path)
{
    return with_path(path, SetCurrentDirectoryW);
}

int tsr__windows_remove(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? tsr__windows_rmdir(path)
                                                           : tsr__windows_unlink(path);
}

int tsr__windows_rename(const char *from, const char *to)
{
    wchar_t *wide_from = tsr__windows_wide(from), *wide_to = tsr__windows_wide(to);
    int result = -1;
    if (wide_from && wide_to)
        result = MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)
                     ? 0
                     : tsr__windows_fail();
    free(wide_from);
    free(wide_to);
    return result;
}

int tsr__windows_access(const char *path, int mode)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return -1;
    if ((mode & W_OK) && (info.st_mode & 0200) == 0) {
        errno = EACCES;
        return -1;
    }
    return 0;
}

int tsr__windows_chmod(const char *path, int mode)
{
    wchar_t *wide = tsr__windows_wide(path);
    if (!wide)
        return -1;
    const DWORD attributes = GetFileAttributesW(wide), fixed = FILE_ATTRIBUTE_READONLY;
    const BOOL done =
        attributes != INVALID_FILE_ATTRIBUTES &&
        SetFileAttributesW(wide, (mode & 0200) ? attributes & ~fixed : attributes | fixed);
    const int result = done ? 0 : tsr__windows_fail();
    free(wide);
    return result;
}

ssize_t readlink(const char *path, char *out, size_t size)
{
    (void)path, (void)out, (void)size;
    errno = EINVAL;
    return -1;
}

char *realpath(const char *path, char *resolved)
{
    struct stat info;
    wchar_t full[32768];
    if (stat(path, &info) != 0)
        return NULL;
    wchar_t *wide = tsr__windows_wide(path);
    if (!wide)
        return NULL;
    const DWORD length = GetFullPathNameW(wide, sizeof full / sizeof *full, full, NULL);
    free(wide);
    if (length == 0 || length >= sizeof full / sizeof *full) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    (void)resolved; /* NULL in every call of this project */
    return tsr__windows_utf8(full);
}

/* Temporary names ------------------------------------------------------------------------------ */

/* Replaces the last six characters of `path` by random ones. Returns false if the path is shorter
 * or there are no random bytes. */
static bool draw_name(char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
    const size_t length = strlen(path);
    uint8_t random[6];
    if (length < sizeof random || getrandom(random, sizeof random, 0) != sizeof random) {
        errno = EINVAL;
        return false;
    }
    for (size_t i = 0; i < sizeof random; i++)
        path[length - sizeof random + i] = letters[random[i] % 32];
    return true;
}

int tsr__windows_mkstemp(char *path)
{
    int descriptor = -1;
    do {
        if (!draw_name(path))
            return -1;
        descriptor = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    } while (descriptor < 0 && errno == EEXIST);
    return descriptor;
}

char *mkdtemp(char *path)
{
    do {
        if (!draw_name(path))
            return NULL;
        if (mkdir(path, 0700) == 0)
            return path;
    } while (errno == EEXIST);
    return NULL;
}

/* Folders -------------------------------------------------------------------------------------- */

struct tsr__windows_dir {
    HANDLE search;
    WIN32_FIND_DATAW found;
    bool has_found; /* `found` has not been returned yet */
    struct dirent entry;
};

DIR *opendir(const char *path)
{
    const size_t size = strlen(path) + 3;
    char *pattern = malloc(size);
    DIR *folder = calloc(1, sizeof *folder);
    wchar_t *wide = NULL;
    if (pattern && folder) {
        (void)snprintf(pattern, size, "%s/*", path);
        wide = tsr__windows_wide(pattern);
    }
    free(pattern);
    if (!wide) {
        free(folder);
        return NULL;
    }
    folder->search = FindFirstFileW(wide, &folder->found);
    free(wide);
    if (folder->search == INVALID_HANDLE_VALUE) {
        tsr__windows_fail();
        free(folder);
        return NULL;
    }
    folder->has_found = true;
    return folder;
}

struct dirent *readdir(DIR *folder)
{
    if (!folder->has_found && !FindNextFileW(folder->search, &folder->found))
        return NULL;
    folder->has_found = false;
    char *name = tsr__windows_utf8(folder->found.cFileName);
    if (!name)
        return NULL;
    (void)snprintf(folder->entry.d_name, sizeof folder->entry.d_name, "%s", name);
    free(name);
    return &folder->entry;
}

int closedir(DIR *folder)
{
    FindClose(folder->search);
    free(folder);
    return 0;
}
