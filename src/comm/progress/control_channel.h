/* The control channel: messages between the ranks of a communicator that belong to no operation. A
 * control message says which call a rank is in, that a communicator has failed, or that a rank has
 * left it. It travels over the connection of the two ranks if there is one, because some control
 * messages must not overtake earlier data. Without a connection, it goes to the mailbox of a rank
 * of the same host (shm/mailbox.h), and for a rank of another host a connection is made. A control
 * message may get lost. A rank that misses one detects the failure by its deadline or by a lost
 * connection. */
#ifndef TSR_COMM_PROGRESS_CONTROL_CHANNEL_H
#define TSR_COMM_PROGRESS_CONTROL_CHANNEL_H

#include "comm/comm_state.h"

tsr_status tsr__control_open(tsr__job *job) TSR_NODISCARD;
/* Blocks until the messages to ranks whose mailbox is full are sent, at most until `until_ns`. All
 * communicators of the job must have been destroyed. */
void tsr__control_flush(tsr__job *job, uint64_t until_ns);
/* Returns whether messages wait for a full mailbox. */
bool tsr__control_is_behind(const tsr__job *job);
/* Stops receiving. Must be called before the transport is destroyed. */
void tsr__control_cancel(tsr__job *job);
/* Frees the control channel. Must be called after the transport was destroyed. */
void tsr__control_close(tsr__job *job);
/* Handles the messages that have arrived. Returns true if there were any. */
bool tsr__control_progress(tsr__job *job);
/* Handles the messages that arrived for a communicator before this rank had created it. */
void tsr__control_replay(tsr_comm *comm);

/* The following functions send a control message to one rank of the communicator, or to all other
 * ranks if `rank` is −1. */

/* Asks which call the rank is in. The answer contains `number`. */
void tsr__control_ask(tsr_comm *comm, int rank, uint32_t number, const tsr__call *call);
/* Reports that the communicator has failed. */
void tsr__control_abort(tsr_comm *comm, int rank);
/* Reports to all ranks that this rank destroys the communicator. */
void tsr__control_leave(tsr_comm *comm);
/* Wakes a rank that sleeps, because this rank has published something in shared memory. */
void tsr__control_wake(tsr_comm *comm, int rank);

#endif
