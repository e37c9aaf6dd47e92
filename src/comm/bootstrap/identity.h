/* A job's identity distinguishes the processes of one job from those of another job that uses the
 * same port and the same token, or no token. Without it, two jobs on one port can swap ranks and
 * compute wrong sums without an error.
 *
 *     TESSERA_JOB_ID  If it is set, it is the only part. `tessera launch` sets it; a user sets
 *                     it to start different executables as one job.
 *     user            The effective user ID, compared on loopback only: numbers and names of users
 *                     may differ between machines.
 *     executable      The path of /proc/self/exe on loopback, its last component otherwise: between
 *                     machines, folders and builds of one program may differ.
 *     torchrun        TORCHELASTIC_RUN_ID.
 *     Slurm           The job's ID (of the first component of a heterogeneous job), and the step's
 *                     ID unless torchrun started this process: a torchrun on each node is often a
 *                     step of its own.
 *
 * Limit: two jobs with the same port, token (or none), number of ranks, user and executable cannot
 * be distinguished if neither TESSERA_JOB_ID nor torchrun nor Slurm identifies them. */
#ifndef TSR_COMM_BOOTSTRAP_IDENTITY_H
#define TSR_COMM_BOOTSTRAP_IDENTITY_H

#include <limits.h>
#include <stdbool.h>

#include "comm/bootstrap/wire.h"

/* All zero: a process without any part of an identity. */
typedef struct tsr__identity {
    const char *job_id, *torchrun; /* of the environment, or NULL */
    char user[24], slurm[80], executable[PATH_MAX];
} tsr__identity;

/* Reads the environment and /proc. */
void tsr__identity_init(tsr__identity *identity);

/* The text of one part, to be compared with another process at an address that is on loopback or
 * not. NULL if this process lacks the part. */
const char *tsr__identity_text(const tsr__identity *identity, tsr__identity_part part,
                               bool loopback);

/* How a process differs in this part, in words that follow "rank 0 " or "it ": "runs another
 * executable, this process runs '/tmp/a'". Contains no value of an environment variable but
 * Slurm's numbers. Returns `text`. */
const char *tsr__identity_difference(const tsr__identity *identity, tsr__identity_part part,
                                     char *text, size_t size);

#endif
