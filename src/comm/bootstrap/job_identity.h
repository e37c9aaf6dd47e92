/* A job's identity distinguishes the processes of one job from those of another job that uses the
 * same port and the same token, or no token. Without an identity, two jobs on one port could
 * exchange ranks and compute wrong sums without an error.
 *
 *     TESSERA_JOB_ID  If this variable is set, it is the only field. `tessera launch` sets it.
 *                     A user sets it to start different executables as one job.
 *     user            The effective user ID. It is compared on loopback only, because the
 *                     numbers and names of users may differ between machines.
 *     executable      On loopback, the path of /proc/self/exe. Otherwise only the last component of
 *                     this path, because machines may have the program in different folders.
 *     torchrun        TORCHELASTIC_RUN_ID.
 *     Slurm           The job's ID; in a heterogeneous job, that of the first component. Also the
 *                     step's ID, unless torchrun started this process: a torchrun on each node is
 *                     often a step of its own.
 *
 * Limit: two jobs cannot be distinguished if they have the same port, the same token (or none), the
 * same number of ranks, the same user and the same executable, and neither TESSERA_JOB_ID nor
 * torchrun nor Slurm identifies them. */
#ifndef TSR_COMM_BOOTSTRAP_JOB_IDENTITY_H
#define TSR_COMM_BOOTSTRAP_JOB_IDENTITY_H

#include <limits.h>
#include <stdbool.h>

#include "comm/bootstrap/wire_protocol.h"

/* The fields of a process's identity. If all bytes are 0, the process has none of the fields. */
typedef struct tsr__identity {
    const char *job_id, *torchrun; /* the values in the environment, or NULL */
    char user[24], slurm[80], executable[PATH_MAX];
} tsr__identity;

/* Reads the environment and /proc. */
void tsr__identity_init(tsr__identity *identity);

/* Returns the text of one field, which is compared with that of another process. `loopback` says
 * whether that process has a loopback address. Returns NULL if this process does not have the
 * field. */
const char *tsr__identity_text(const tsr__identity *identity, tsr__identity_field field,
                               bool loopback);

/* Describes how another process differs from this one in this field, in words that follow "rank 0 "
 * or "it ": for example "runs another executable, this process runs '/tmp/a'". The text contains no
 * values of environment variables, except Slurm's numbers. Returns `text`. */
const char *tsr__identity_difference(const tsr__identity *identity, tsr__identity_field field,
                                     char *text, size_t size);

#endif
