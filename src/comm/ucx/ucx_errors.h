/* Errors of UCX, with their likely cause. If the system does not give UCX the resources that it
 * needs, UCX reports little more than "No resources are available", or aborts the process. */
#ifndef TSR_COMM_UCX_UCX_ERRORS_H
#define TSR_COMM_UCX_UCX_ERRORS_H

#include <stdbool.h>

#include "comm/ucx/ucx_library.h"

/* Returns TSR_OK for UCS_OK. Otherwise returns an error that names `what` and contains the
 * description of tsr__ucx_describe(). */
tsr_status tsr__ucx_check(ucs_status_t status, const char *what) TSR_NODISCARD;

/* Fails if this process may open too few files for UCX. Without this check, UCX would abort the
 * process. */
tsr_status tsr__ucx_check_descriptors(void) TSR_NODISCARD;

/* Returns whether this library may disable POSIX shared memory, so that UCX uses System V shared
 * memory instead. It may, unless the user has chosen transports (UCX_TLS) or a folder
 * (UCX_POSIX_DIR). */
bool tsr__ucx_may_avoid_posix(void);

/* Returns the bytes of POSIX shared memory that UCX 1.13 takes for one process: two areas of whole
 * pages. */
uint64_t tsr__ucx_posix_bytes(uint64_t page_bytes);

/* Returns whether the folder of POSIX shared memory, usually /dev/shm, is writable and has enough
 * room for one process. */
bool tsr__ucx_posix_fits(void);

/* Returns whether missing POSIX shared memory may be the cause of a failure. */
bool tsr__ucx_is_out_of_resources(ucs_status_t status);

/* Describes an error of UCX with its likely cause, for example "Endpoint timeout; this process has
 * 1 of 24 file descriptors left: raise 'ulimit -n'". Returns `text`. */
const char *tsr__ucx_describe(ucs_status_t status, char *text, size_t size);

#endif
