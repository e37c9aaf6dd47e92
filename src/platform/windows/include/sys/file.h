/* flock. The lock excludes other descriptors of this process as well, and ends when the descriptor
 * is closed. */
#ifndef TSR_WINDOWS_SYS_FILE_H
#define TSR_WINDOWS_SYS_FILE_H

#define LOCK_EX 2
#define LOCK_NB 4
#define LOCK_UN 8
int flock(int descriptor, int operation);

#endif
