/* Declares flock. A lock also excludes other descriptors of this process. Closing the descriptor
 * releases it. */
#ifndef TSR_WINDOWS_SYS_FILE_H
#define TSR_WINDOWS_SYS_FILE_H

#define LOCK_EX 2
#define LOCK_NB 4
#define LOCK_UN 8
int flock(int descriptor, int operation);

#endif
