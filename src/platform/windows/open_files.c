/* Implements POSIX's functions on open files with handles of Windows. */
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <windows.h>

#include "platform/windows/utf16.h"

/* This file calls the functions of the C library itself, so remove the macros of include/ that
 * replace them. */
#undef open
#undef write
#undef fopen
#undef fdopen
#undef fcntl

#define MOST_BYTES (1u << 30) /* the most that one call transfers */

static HANDLE handle_of(int descriptor)
{
    const HANDLE handle = (HANDLE)_get_osfhandle(descriptor);
    if (handle == INVALID_HANDLE_VALUE)
        errno = EBADF;
    return handle;
}

static bool is_folder(HANDLE handle)
{
    BY_HANDLE_FILE_INFORMATION info;
    return GetFileInformationByHandle(handle, &info) &&
           (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
}

/* Opening -------------------------------------------------------------------------------------- */

/* Opens a file. Other programs may read, write, rename and remove it while it is open, as on
 * POSIX. */
static HANDLE open_handle(const wchar_t *path, int flags, bool writable_mode)
{
    const int access_mode = flags & (O_RDONLY | O_WRONLY | O_RDWR);
    const DWORD access = access_mode == O_WRONLY ? GENERIC_WRITE
                         : access_mode == O_RDWR ? GENERIC_READ | GENERIC_WRITE
                                                 : GENERIC_READ;
    const DWORD share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    const DWORD creation = (flags & O_CREAT) == 0
                               ? (flags & O_TRUNC) ? TRUNCATE_EXISTING : OPEN_EXISTING
                           : (flags & O_EXCL)  ? CREATE_NEW
                           : (flags & O_TRUNC) ? CREATE_ALWAYS
                                               : OPEN_ALWAYS;
    /* With FILE_FLAG_BACKUP_SEMANTICS, CreateFileW also opens folders. */
    const DWORD attributes = FILE_FLAG_BACKUP_SEMANTICS |
                             (writable_mode ? FILE_ATTRIBUTE_NORMAL : FILE_ATTRIBUTE_READONLY);
    return CreateFileW(path, access, share, NULL, creation, attributes, NULL);
}

static int descriptor_of(HANDLE handle, int flags)
{
    const int kept = flags & (O_RDONLY | O_APPEND);
    const int descriptor = _open_osfhandle((intptr_t)handle, kept | _O_BINARY | _O_NOINHERIT);
    if (descriptor < 0)
        CloseHandle(handle);
    return descriptor;
}

int tsr__windows_open(const char *path, int flags, ...)
{
    int mode = 0666;
    if (flags & O_CREAT) {
        va_list arguments;
        va_start(arguments, flags);
        mode = va_arg(arguments, int);
        va_end(arguments);
    }
    if (strcmp(path, "/dev/null") == 0)
        path = "NUL";
    wchar_t *wide = tsr__windows_wide(path);
    if (!wide)
        return -1;
    const HANDLE handle = open_handle(wide, flags, (mode & 0200) != 0);
    free(wide);
    if (handle == INVALID_HANDLE_VALUE)
        return tsr__windows_fail();
    if ((flags & O_DIRECTORY) && !is_folder(handle)) {
        CloseHandle(handle);
        errno = ENOTDIR;
        return -1;
    }
    return descriptor_of(handle, flags);
}

FILE *tsr__windows_fdopen(int descriptor, const char *mode)
{
    char binary[8];
    (void)snprintf(binary, sizeof binary, "%.5s%s", mode, strchr(mode, 'b') ? "" : "b");
    return _fdopen(descriptor, binary);
}

FILE *tsr__windows_fopen(const char *path, const char *mode)
{
    const bool both = strchr(mode, '+') != NULL;
    const int flags = mode[0] == 'r'   ? both ? O_RDWR : O_RDONLY
                      : mode[0] == 'w' ? (both ? O_RDWR : O_WRONLY) | O_CREAT | O_TRUNC
                                       : (both ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND;
    const int descriptor = tsr__windows_open(path, flags | (strchr(mode, 'x') ? O_EXCL : 0), 0666);
    struct stat info;
    if (descriptor >= 0 && (flags & (O_WRONLY | O_RDWR)) == 0 && fstat(descriptor, &info) == 0 &&
        S_ISDIR(info.st_mode)) {
        _close(descriptor);
        errno = EISDIR;
        return NULL;
    }
    FILE *file = descriptor >= 0 ? tsr__windows_fdopen(descriptor, mode) : NULL;
    if (!file && descriptor >= 0)
        _close(descriptor);
    return file;
}

int tsr__windows_fcntl(int descriptor, int command)
{
    (void)command;
    return handle_of(descriptor) == INVALID_HANDLE_VALUE ? -1 : 0;
}

/* Reading and writing -------------------------------------------------------------------------- */

static OVERLAPPED at_offset(off_t offset)
{
    return (OVERLAPPED){.Offset = (DWORD)(uint64_t)offset,
                        .OffsetHigh = (DWORD)((uint64_t)offset >> 32)};
}

ssize_t pread(int descriptor, void *data, size_t size, off_t offset)
{
    const HANDLE handle = handle_of(descriptor);
    OVERLAPPED where = at_offset(offset);
    DWORD got = 0;
    if (handle == INVALID_HANDLE_VALUE)
        return -1;
    if (ReadFile(handle, data, (DWORD)(size < MOST_BYTES ? size : MOST_BYTES), &got, &where) ||
        GetLastError() == ERROR_HANDLE_EOF)
        return (ssize_t)got;
    return tsr__windows_fail();
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset)
{
    const HANDLE handle = handle_of(descriptor);
    OVERLAPPED where = at_offset(offset);
    DWORD wrote = 0;
    if (handle == INVALID_HANDLE_VALUE)
        return -1;
    if (WriteFile(handle, data, (DWORD)(size < MOST_BYTES ? size : MOST_BYTES), &wrote, &where))
        return (ssize_t)wrote;
    return tsr__windows_fail();
}

ssize_t tsr__windows_write(int descriptor, const void *data, size_t size)
{
    return _write(descriptor, data, (unsigned)(size < MOST_BYTES ? size : MOST_BYTES));
}

int fsync(int descriptor)
{
    const HANDLE handle = handle_of(descriptor);
    if (handle == INVALID_HANDLE_VALUE)
        return -1;
    if (is_folder(handle)) {
        errno = EINVAL;
        return -1;
    }
    return FlushFileBuffers(handle) ? 0 : tsr__windows_fail();
}

int tsr__windows_ftruncate(int descriptor, off_t size)
{
    const HANDLE handle = handle_of(descriptor);
    FILE_END_OF_FILE_INFO end = {.EndOfFile.QuadPart = size};
    if (handle == INVALID_HANDLE_VALUE)
        return -1;
    return SetFileInformationByHandle(handle, FileEndOfFileInfo, &end, sizeof end)
               ? 0
               : tsr__windows_fail();
}

int tsr__windows_truncate(const char *path, off_t size)
{
    const int descriptor = tsr__windows_open(path, O_WRONLY);
    if (descriptor < 0)
        return -1;
    const int result = tsr__windows_ftruncate(descriptor, size);
    _close(descriptor);
    return result;
}

int posix_fallocate(int descriptor, off_t offset, off_t size)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0)
        return errno;
    if (info.st_size >= offset + size)
        return 0;
    return tsr__windows_ftruncate(descriptor, offset + size) == 0 ? 0 : errno;
}

/* Locks one byte far behind the end of the file instead of the file, because Windows does not let
 * other processes read a locked range. */
int flock(int descriptor, int operation)
{
    const HANDLE handle = handle_of(descriptor);
    OVERLAPPED where = {.Offset = 0, .OffsetHigh = 0x7fffffff};
    if (handle == INVALID_HANDLE_VALUE)
        return -1;
    if (operation & LOCK_UN)
        return UnlockFileEx(handle, 0, 1, 0, &where) ? 0 : tsr__windows_fail();
    const DWORD flags =
        LOCKFILE_EXCLUSIVE_LOCK | ((operation & LOCK_NB) ? LOCKFILE_FAIL_IMMEDIATELY : 0);
    if (LockFileEx(handle, flags, 0, 1, 0, &where))
        return 0;
    if (GetLastError() != ERROR_LOCK_VIOLATION && GetLastError() != ERROR_IO_PENDING)
        return tsr__windows_fail();
    errno = EWOULDBLOCK;
    return -1;
}

ssize_t getline(char **line, size_t *capacity, FILE *file)
{
    size_t used = 0;
    for (int c = 0; c != '\n' && (c = fgetc(file)) != EOF;) {
        if (used + 2 > *capacity) {
            const size_t wanted = *capacity < 64 ? 128 : 2 * *capacity;
            char *larger = realloc(*line, wanted);
            if (!larger)
                return -1;
            *line = larger;
            *capacity = wanted;
        }
        (*line)[used++] = (char)c;
        (*line)[used] = '\0';
    }
    return used > 0 ? (ssize_t)used : -1;
}

/* What a file is ------------------------------------------------------------------------------- */

static time_t seconds_of(FILETIME time)
{
    /* units of 100 ns since 1601 */
    const uint64_t ticks = (uint64_t)time.dwHighDateTime << 32 | time.dwLowDateTime;
    return (time_t)(ticks / 10000000) - (time_t)11644473600;
}

static int describe(HANDLE handle, struct stat *out)
{
    BY_HANDLE_FILE_INFORMATION info;
    const DWORD type = GetFileType(handle);
    *out = (struct stat){.st_nlink = 1};
    if (type == FILE_TYPE_PIPE || type == FILE_TYPE_CHAR) {
        out->st_mode = (type == FILE_TYPE_PIPE ? _S_IFIFO : _S_IFCHR) | 0666;
        return 0;
    }
    if (!GetFileInformationByHandle(handle, &info))
        return tsr__windows_fail();
    const bool folder = (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0,
               fixed = (info.dwFileAttributes & FILE_ATTRIBUTE_READONLY) != 0;
    out->st_mode = (unsigned)(folder ? _S_IFDIR | 0777 : _S_IFREG | (fixed ? 0444 : 0666));
    out->st_nlink = info.nNumberOfLinks;
    out->st_dev = info.dwVolumeSerialNumber;
    out->st_ino = (uint64_t)info.nFileIndexHigh << 32 | info.nFileIndexLow;
    out->st_size = (off_t)((uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow);
    out->st_mtime = seconds_of(info.ftLastWriteTime);
    return 0;
}

int fstat(int descriptor, struct stat *out)
{
    const HANDLE handle = handle_of(descriptor);
    return handle == INVALID_HANDLE_VALUE ? -1 : describe(handle, out);
}

int stat(const char *path, struct stat *out)
{
    wchar_t *wide = tsr__windows_wide(path);
    if (!wide)
        return -1;
    /* Open the file with no access (0), which succeeds even for files that this process may not
     * read. */
    const HANDLE handle =
        CreateFileW(wide, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                    OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    free(wide);
    if (handle == INVALID_HANDLE_VALUE)
        return tsr__windows_fail();
    const int result = describe(handle, out);
    CloseHandle(handle);
    return result;
}
