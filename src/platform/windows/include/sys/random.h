/* Declares getrandom, which uses the generator of Windows. */
#ifndef TSR_WINDOWS_SYS_RANDOM_H
#define TSR_WINDOWS_SYS_RANDOM_H

#include <stddef.h>
#include <sys/types.h>

ssize_t getrandom(void *data, size_t size, unsigned flags);

#endif
