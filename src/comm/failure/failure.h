/* How communicators fail. A rank detects a failure (a deadline has passed, a peer is gone, or two
 * calls differ) and records it with the functions below, which only change state. tsr__job_apply in
 * progress/progress.c then carries out the effects: it sends messages and cancels requests, before
 * control returns to the caller of the library.
 *
 * A rank that fails because of a lost peer often ends soon afterwards. So another rank may detect
 * the loss of that rank before it detects the loss of the peer. Therefore a rank that detects a
 * loss by itself first starts a grace period, in which other ranks may report the original failure.
 * The communicator fails at the end of the grace period. */
#ifndef TSR_COMM_FAILURE_FAILURE_H
#define TSR_COMM_FAILURE_FAILURE_H

#include "comm/comm_state.h"

/* failure.c ---------------------------------------------------------------------------------------
 */

/* Records that the communicator has failed. Has no effect if the communicator has failed before.
 * `announce` is true if this rank must report the failure to the other ranks, and false if one of
 * them has reported it. */
void tsr__comm_fail(tsr_comm *comm, bool announce, tsr_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Returns how long this rank waits for the report of another rank if all ranks may have
 * detected the same failure. Returns 0 in a small communicator. */
uint64_t tsr__comm_stagger_ns(const tsr_comm *comm);
/* Records that this rank must ask `rank` which call it has made. If `rank` is −1, it must ask all
 * ranks of the communicator, or in a large communicator only those that the request waits for. The
 * answers contain the number request->question. */
void tsr__request_ask(tsr_request *request, int rank);

/* Adds a tombstone for a communicator that has failed, or that was destroyed with operations in
 * progress. For one second, messages that other ranks have already sent to this communicator are
 * received and discarded. Without a tombstone, their senders would have to close the connection
 * before they could use their buffers again. */
void tsr__tombstone_add(tsr__job *job, uint32_t comm);
/* Receives and discards the messages that have arrived for communicators with a tombstone. */
void tsr__tombstones_discard(tsr__job *job);

/* mismatch.c --------------------------------------------------------------------------------------
 */

/* Returns this rank's call with this sequence number. Returns NULL if this rank has not
 * made that call yet, or if the call is too old to be kept. */
const tsr__call *tsr__comm_past_call(const tsr_comm *comm, uint64_t sequence);
/* Compares another rank's call, and the call before it, with this rank's calls of the same sequence
 * numbers. Fails the communicator if they differ. */
void tsr__comm_compare(tsr_comm *comm, int rank, const tsr__call *call, const tsr__call *before);
/* Fails the communicator because two calls differ. The error text is the same on both ranks. */
void tsr__comm_fail_mismatch(tsr_comm *comm, const tsr__call *mine, int rank,
                             const tsr__call *theirs);
/* Fails the communicator because a message belongs to another call than the request. The error
 * names only what the message tells, because its sender has not answered in time. */
void tsr__request_fail_mismatch(const tsr_request *request);

/* deadline.c --------------------------------------------------------------------------------------
 */

/* Returns whether the request waits for `rank`: for data that `rank` must publish or send, or
 * for `rank` to receive a message. */
bool tsr__request_awaits(const tsr_request *request, int rank);
/* Sets the time from which the request's timeout counts. */
void tsr__request_start_clock(tsr_request *request, uint64_t now_ns);
/* Returns whether the grace period of any communicator of the job is over. */
bool tsr__job_has_ended_grace_period(const tsr__job *job, uint64_t now_ns);
/* Handles grace periods and deadlines that have ended, and asks the other ranks about requests that
 * have waited for a long time. Returns the time by which it must be called again. */
uint64_t tsr__job_check_deadlines(tsr__job *job, uint64_t now_ns);

/* peer_failure.c ----------------------------------------------------------------------------------
 */

/* Handles a request one of whose messages has failed, or has turned out to belong to another call
 * of its sender. In the second case asks the sender for that call; otherwise starts the
 * communicator's grace period. */
void tsr__request_message_failed(tsr_request *request);
/* Starts the grace period if an operation of this communicator waits for a rank that is gone. */
void tsr__comm_check_peers(tsr_comm *comm);
/* Ends the grace period. Fails the communicator if an operation still waits for a rank that is
 * gone. */
void tsr__comm_end_grace_period(tsr_comm *comm, uint64_t now_ns);

/* Fails the communicator if an operation of it is running, because this process cannot receive
 * messages any more. */
void tsr__comm_fail_stuck(tsr_comm *comm);

#endif
