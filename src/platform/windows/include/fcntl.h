/* <fcntl.h> with POSIX's meaning: paths are UTF-8, bytes are not translated, and other processes
 * may rename or remove open files. */
#ifndef TSR_WINDOWS_FCNTL_H
#define TSR_WINDOWS_FCNTL_H

#include_next <fcntl.h>

/* Flags of open that Windows lacks. Those that are 0 have no effect. */
#define O_CLOEXEC 0
#define O_NONBLOCK 0
#define O_NOFOLLOW 0
#define O_DIRECTORY 0x1000000

int tsr__windows_open(const char *path, int flags, ...);
#define open(...) tsr__windows_open(__VA_ARGS__)

/* The only command of fcntl: checks whether a descriptor is open. */
#define F_GETFD 1
int tsr__windows_fcntl(int descriptor, int command);
#define fcntl(descriptor, command) tsr__windows_fcntl(descriptor, command)

int posix_fallocate(int descriptor, off_t offset, off_t size);

#endif
