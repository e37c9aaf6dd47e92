/* Errors of UCX, with their likely cause. If UCX does not get what it needs from the system, it
 * reports little more than "No resources are available", or aborts the process. */
#ifndef TSR_COMM_UCX_RESOURCES_H
#define TSR_COMM_UCX_RESOURCES_H

#include <stdbool.h>

#include "comm/ucx/library.h"

/* Turns a status of UCX into an error of `what`, described as by tsr__ucx_describe(). */
tsr_status tsr__ucx_check(ucs_status_t status, const char *what) TSR_NODISCARD;

/* Fails if this process may open too few files for UCX, which would abort the process. */
tsr_status tsr__ucx_check_descriptors(void) TSR_NODISCARD;

/* Whether this library may disable POSIX shared memory, so that UCX uses System V shared memory
 * instead: if the user has chosen neither transports (UCX_TLS) nor a folder (UCX_POSIX_DIR). */
bool tsr__ucx_may_avoid_posix(void);

/* Whether the folder of POSIX shared memory, usually /dev/shm, is writable and has room for one
 * process. */
bool tsr__ucx_posix_fits(void);

/* Whether a failure may be one of POSIX shared memory. */
bool tsr__ucx_is_out_of_resources(ucs_status_t status);

/* Describes an error of UCX, with the likely cause: "Endpoint timeout; this process has 1 of 24
 * file descriptors left: raise 'ulimit -n'". Returns `text`. */
const char *tsr__ucx_describe(ucs_status_t status, char *text, size_t size);

#endif
