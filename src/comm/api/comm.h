/* Communicators, for the files of this folder: their creation and end, the slots that they reserve
 * in shared memory, and the rule for children of fork(). */
#ifndef TSR_COMM_API_COMM_H
#define TSR_COMM_API_COMM_H

#include "comm/job.h"

/* comm.c --------------------------------------------------------------------------------------- */

/* A communicator of the ranks world_of[0] … world_of[size − 1] of the job, with the settings of
 * `like`, or defaults. It owns world_of on success. */
tsr_status tsr__comm_new(tsr__job *job, uint32_t id, int rank, int size, int *world_of,
                         const tsr_comm *like, tsr_comm **out) TSR_NODISCARD;
/* Frees a communicator and its world_of, without messages to others. The job stays. */
void tsr__comm_free(tsr_comm *comm);
/* Gives a communicator its final number and members; its world_of has been changed already. */
void tsr__comm_set_members(tsr_comm *comm, uint32_t id, int rank, int size);

/* What one rank contributes to a new communicator's use of shared memory. It is reserved before the
 * ranks exchange it, because afterwards no rank may fail alone. */
typedef struct tsr__shm_reservation {
    tsr__shm *shm;
    int slot;       /* −1: this rank has none */
    int32_t *slots; /* of each rank, to be filled in */
} tsr__shm_reservation;
tsr_status tsr__shm_reserve(tsr__job *job, int size,
                            tsr__shm_reservation *reservation) TSR_NODISCARD;
/* Uses the slots if all ranks have one and the transport supports the communicator, and returns
 * them otherwise. */
void tsr__shm_use(tsr_comm *comm, tsr__shm_reservation *reservation);
void tsr__shm_cancel(tsr__job *job, tsr__shm_reservation *reservation);

/* Ends the transport and frees the job, which has no communicators any more. Blocks until all sent
 * messages have been delivered, or until_ns. */
void tsr__job_end(tsr__job *job, uint64_t until_ns);

/* fork.c --------------------------------------------------------------------------------------- */

/* Whether this process is a child, by fork(), of the one that created the job. */
bool tsr__job_is_inherited(const tsr__job *job);
/* Fails in such a child. `name` is the function that was called. */
tsr_status tsr__job_refuse_child(const tsr__job *job, const char *name) TSR_NODISCARD;
/* In such a child, ends the handle of a request with an error. In the parent the request
 * continues. */
void tsr__request_leave_to_parent(tsr_request *request);

#endif
