/* How communicators fail. A rank that detects a failure (a deadline that has passed, a peer that is
 * gone, two calls that differ) records it here, as a change of state. The effects, which are to
 * send messages and to cancel requests, happen in one place, tsr__job_apply in progress/progress.c,
 * before control returns to the caller.
 *
 * A rank that gives up because of a lost peer often ends soon after, so a survivor may notice the
 * second loss first. A loss that a rank detects by itself therefore starts a grace period, in which
 * another rank may report the original failure; only then it fails the communicator. */
#ifndef TSR_COMM_FAILURE_FAILURE_H
#define TSR_COMM_FAILURE_FAILURE_H

#include "comm/job.h"

/* failure.c ------------------------------------------------------------------------------------ */

/* Records that the communicator has failed, unless it already has. `announce`: this rank must
 * report the failure to the other ranks, because it was not reported by one of them. */
void tsr__comm_fail(tsr_comm *comm, bool announce, tsr_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Records that the request's ranks, or one of them (`rank` ≥ 0), must be asked what they have
 * called. The answers carry the number request->question. */
void tsr__request_ask(tsr_request *request, int rank);

/* mismatch.c ----------------------------------------------------------------------------------- */

/* This rank's call with that sequence number. NULL if this rank has not made it yet, or does not
 * remember it any more. */
const tsr__call *tsr__comm_past_call(const tsr_comm *comm, uint64_t sequence);
/* Compares another rank's call, and the one before it, with the same calls of this rank. Fails the
 * communicator if they differ. */
void tsr__comm_compare(tsr_comm *comm, int rank, const tsr__call *call, const tsr__call *before);
/* Fails the communicator because two calls differ, in the same words on both ranks. */
void tsr__comm_fail_mismatch(tsr_comm *comm, const tsr__call *mine, int rank,
                             const tsr__call *theirs);
/* Fails the communicator because a rank has not named, in time, the call that its message belongs
 * to. */
void tsr__request_fail_mismatch(const tsr_request *request);

/* deadline.c ----------------------------------------------------------------------------------- */

/* Starts the request's timeout. */
void tsr__request_start_clock(tsr_request *request, uint64_t now_ns);
/* Whether some communicator's grace period has ended. */
bool tsr__job_has_ended_grace_period(const tsr__job *job, uint64_t now_ns);
/* Handles grace periods and deadlines that have ended, and decides when to ask the other ranks.
 * Returns when it must be called next. */
uint64_t tsr__job_check_deadlines(tsr__job *job, uint64_t now_ns);

/* peer_failure.c ------------------------------------------------------------------------------- */

/* Some message of the request has failed or does not belong to its call. Asks its sender, or starts
 * the communicator's grace period. */
void tsr__request_message_failed(tsr_request *request);
/* Starts the grace period if an operation of this communicator waits for a rank that is gone. */
void tsr__comm_check_peers(tsr_comm *comm);
/* Ends the grace period: fails the communicator if an operation still waits for such a rank. */
void tsr__comm_end_grace_period(tsr_comm *comm, uint64_t now_ns);

/* tombstone.c ---------------------------------------------------------------------------------- */

/* Adds a tombstone for a communicator that has failed, or was destroyed with operations in
 * progress. For one second, messages that others have already sent to it are received and
 * discarded, so that their senders need not close the connection to get their buffers back. */
void tsr__tombstone_add(tsr__job *job, uint32_t comm);
/* Receives and discards what has arrived for such communicators. */
void tsr__tombstones_discard(tsr__job *job);

#endif
