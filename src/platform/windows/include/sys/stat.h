/* <sys/stat.h> with POSIX's meaning: UTF-8 paths, the identity of files, 64-bit sizes. */
#ifndef TSR_WINDOWS_SYS_STAT_H
#define TSR_WINDOWS_SYS_STAT_H

#include <stdint.h>
#include <wchar.h>

#include_next <sys/stat.h>

#undef stat
#undef fstat

/* This name stands for the struct and for the function. */
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

/* The mode has no meaning. */
int tsr__windows_mkdir(const char *path, int mode);
#define mkdir(path, mode) tsr__windows_mkdir(path, mode)
int tsr__windows_chmod(const char *path, int mode);
#define chmod(path, mode) tsr__windows_chmod(path, mode)
#define fchmod(descriptor, mode) ((void)(descriptor), (void)(mode), 0)

#endif
