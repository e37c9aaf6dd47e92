/* <sys/stat.h> with POSIX's meaning: paths are UTF-8, st_dev and st_ino identify a file, and sizes
 * have 64 bits. */
#ifndef TSR_WINDOWS_SYS_STAT_H
#define TSR_WINDOWS_SYS_STAT_H

#include <stdint.h>
#include <wchar.h>

#include_next <sys/stat.h>

#undef stat
#undef fstat

/* The macro `stat` renames both the struct and the function. */
#define stat tsr__windows_stat
#define fstat tsr__windows_fstat
#define lstat tsr__windows_stat

struct stat {
    uint64_t st_dev, st_ino;
    unsigned st_mode, st_nlink;
    off_t st_size;
    time_t st_mtime;
};

int stat(const char *path, struct stat *out);
int fstat(int descriptor, struct stat *out);

#undef S_ISLNK
#define S_ISLNK(mode) ((void)(mode), 0)

/* mkdir and fchmod ignore the mode. chmod uses only its permission for the owner to write. */
int tsr__windows_mkdir(const char *path, int mode);
#define mkdir(path, mode) tsr__windows_mkdir(path, mode)
int tsr__windows_chmod(const char *path, int mode);
#define chmod(path, mode) tsr__windows_chmod(path, mode)
#define fchmod(descriptor, mode) ((void)(descriptor), (void)(mode), 0)

#endif
