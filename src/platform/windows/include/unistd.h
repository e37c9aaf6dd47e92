/* <unistd.h> with POSIX's meaning. */
#ifndef TSR_WINDOWS_UNISTD_H
#define TSR_WINDOWS_UNISTD_H

#include_next <unistd.h>

/* Read and write at an offset. Unlike POSIX's functions, they also move the descriptor's
 * position. */
ssize_t pread(int descriptor, void *data, size_t size, off_t offset);
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset);

/* Fails with EINVAL for a folder, as on file systems that cannot synchronise folders. */
int fsync(int descriptor);

int tsr__windows_ftruncate(int descriptor, off_t size);
#undef ftruncate
#define ftruncate(descriptor, size) tsr__windows_ftruncate(descriptor, size)
int tsr__windows_truncate(const char *path, off_t size);
#undef truncate
#define truncate(path, size) tsr__windows_truncate(path, size)

/* Always fails with EINVAL, as POSIX does for a file that is not a symbolic link. */
ssize_t readlink(const char *path, char *out, size_t size);

ssize_t tsr__windows_write(int descriptor, const void *data, size_t size);
#define write(...) tsr__windows_write(__VA_ARGS__)

int tsr__windows_unlink(const char *path);
int tsr__windows_rmdir(const char *path);
int tsr__windows_chdir(const char *path);
int tsr__windows_access(const char *path, int mode);
#define unlink(path) tsr__windows_unlink(path)
#define rmdir(path) tsr__windows_rmdir(path)
#define chdir(path) tsr__windows_chdir(path)
#define access(path, mode) tsr__windows_access(path, mode)

/* sysconf returns -1 for _SC_CLK_TCK. */
enum { _SC_NPROCESSORS_ONLN, _SC_PHYS_PAGES, _SC_PAGESIZE, _SC_CLK_TCK };
long sysconf(int name);

int usleep(unsigned microseconds);

#endif
