/* The control channel: messages between communicators that are not part of an operation. They say
 * which call a rank is in, that a communicator has failed, or that a rank has left it. Delivery is
 * best effort: a rank that misses such a message detects the failure by its deadline or by a lost
 * connection. */
#ifndef TSR_COMM_PROGRESS_CONTROL_H
#define TSR_COMM_PROGRESS_CONTROL_H

#include "comm/job.h"

tsr_status tsr__control_open(tsr__job *job) TSR_NODISCARD;
/* Stops receiving; called before the transport ends. */
void tsr__control_cancel(tsr__job *job);
/* Frees everything; called after the transport has ended. */
void tsr__control_close(tsr__job *job);
/* Handles the messages that have arrived. Returns true if there were any. */
bool tsr__control_progress(tsr__job *job);
/* Handles what was received for a communicator before it existed on this rank. */
void tsr__control_replay(tsr_comm *comm);

/* Each of these sends to one rank of the communicator, or to all (−1). */

/* Asks which call the rank is in. The answer carries `number`. */
void tsr__control_ask(tsr_comm *comm, int rank, uint32_t number, const tsr__call *call);
/* The communicator has failed. */
void tsr__control_abort(tsr_comm *comm, int rank);
/* This rank destroys the communicator. */
void tsr__control_leave(tsr_comm *comm);
/* Wakes a rank that sleeps: something was published in shared memory. */
void tsr__control_wake(tsr_comm *comm, int rank);

#endif
