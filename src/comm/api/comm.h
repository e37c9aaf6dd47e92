/* Communicators, as the files of this folder use them: how they are created and destroyed, how they
 * reserve slots in shared memory, and what they do in children of fork(). */
#ifndef TSR_COMM_API_COMM_H
#define TSR_COMM_API_COMM_H

#include "comm/bootstrap/bootstrap.h"
#include "comm/comm_state.h"

/* comm.c ------------------------------------------------------------------------------------------
 */

/* Creates a communicator of the ranks world_of[0] … world_of[size − 1] of the job. It has the
 * settings of `like`, or the defaults if `like` is NULL. On success it owns world_of. */
tsr_status tsr__comm_new(tsr__job *job, uint32_t id, int rank, int size, int *world_of,
                         const tsr_comm *like, tsr_comm **out) TSR_NODISCARD;
/* Frees a communicator and its world_of without sending messages to other ranks. Does not free the
 * job. */
void tsr__comm_free(tsr_comm *comm);
/* Sets the final number and members of a communicator. The caller has already changed its
 * world_of. */
void tsr__comm_set_members(tsr_comm *comm, uint32_t id, int rank, int size);

/* What one rank needs for the shared memory of a new communicator. It is allocated before the ranks
 * exchange their slots, because after the exchange no rank may fail alone. */
typedef struct tsr__shm_reservation {
    tsr__shm *shm;
    int slot;       /* −1 if this rank has no slot */
    int32_t *slots; /* the slot of each rank, filled in by the caller */
} tsr__shm_reservation;
tsr_status tsr__shm_reserve(tsr__job *job, int size,
                            tsr__shm_reservation *reservation) TSR_NODISCARD;
/* Lets the communicator use the slots of shared memory that its ranks have reserved, if every rank
 * has one. If all ranks can use the shared-memory transport, all operations use the slots.
 * Otherwise only inner steps do, collectives of ranks of one host (algorithms/hierarchical.h),
 * provided that the ranks are placed on hosts so that there are such steps. Frees this rank's slot
 * if it is not used. */
void tsr__shm_use(tsr_comm *comm, tsr__shm_reservation *reservation);
void tsr__shm_cancel(tsr__job *job, tsr__shm_reservation *reservation);

/* Destroys the transport and frees the job, which must have no communicators left. Blocks until all
 * sent messages have been delivered, but not longer than until `until_ns`. */
void tsr__job_end(tsr__job *job, uint64_t until_ns);

/* create_comm.c -----------------------------------------------------------------------------------
 */

/* The job from which a new job is made by shrinking or growing, or nothing for a first job. The new
 * job takes over its recovery, and its lineage if it replaces the old job (recovery/recovery.h). */
typedef struct tsr__origin {
    tsr__recovery *recovery; /* NULL: the new job descends from no other */
    /* the key, lineage and generation that the new job takes over; NULL: it makes new ones */
    const tsr__roster *roster;
    /* If `confirms` is true, each rank tells the others through the bootstrap whether it has
     * succeeded so far, before any rank uses the new job. If `confirms_end` is true, it tells them
     * again when everything is done. So all ranks learn at once if one has failed. With both,
     * either all ranks succeed or none, unless a rank is lost during the last exchange. */
    bool confirms, confirms_end;
    /* Exchanges with all ranks whether they have succeeded. NULL: the ranks do so by an exchange of
     * empty contributions through the bootstrap. */
    tsr_status (*confirm)(void *user);
    void *user;
} tsr__origin;
/* Creates a communicator of all ranks of a bootstrap. Closes the bootstrap, also after a
 * failure. */
tsr_status tsr__comm_create_over(tsr__bootstrap *bootstrap, const tsr_comm_params *params,
                                 const tsr__bootstrap_limit *limit, const tsr__origin *origin,
                                 tsr_comm **out) TSR_NODISCARD;

/* fork_child.c ------------------------------------------------------------------------------------
 */

/* Returns whether this process is a child, created by fork(), of the process that created the
 * job. */
bool tsr__job_is_inherited(const tsr__job *job);
/* Returns an error if tsr__job_is_inherited, and TSR_OK otherwise. `name` is the function that was
 * called. */
tsr_status tsr__job_refuse_child(const tsr__job *job, const char *name) TSR_NODISCARD;
/* In a child of fork(), completes the handle of a request with an error. The request itself
 * continues in the parent process. */
void tsr__request_leave_to_parent(tsr_request *request);

#endif
