/* The progress loop, which advances all operations of a job, and the functions that create, cancel
 * and finish requests. There is no thread: operations progress only inside calls of the library. */
#ifndef TSR_COMM_PROGRESS_PROGRESS_H
#define TSR_COMM_PROGRESS_PROGRESS_H

#include "comm/comm_state.h"

/* progress.c --------------------------------------------------------------------------------------
 */

/* Advances all operations of the job as far as possible without blocking. Returns true if any of
 * them has advanced. */
bool tsr__job_progress(tsr__job *job);
/* Calls tsr__job_progress until it returns false, but at most a few times. */
void tsr__job_progress_all(tsr__job *job);
/* Handles processes that have ended, and grace periods and deadlines that are over. Returns the
 * time by which it must be called again. */
uint64_t tsr__job_tick(tsr__job *job, uint64_t now_ns);
/* Carries out the effects of state changes that failure/ has recorded: sends questions, reports a
 * failure to the other ranks, and cancels the failed communicator's requests. Blocks for at most 60
 * ms per request. Every public function that may record such a change must call this before
 * returning. Returns true if there were such changes. */
bool tsr__job_apply(tsr__job *job);

/* Starts a request. Its call must be set, and its schedule or shared-memory operation must be
 * prepared. If this returns TSR_OK, later failures are failures of the communicator. */
tsr_status tsr__request_start(tsr_request *request) TSR_NODISCARD;
/* Blocks until the request is done. */
void tsr__request_block(tsr_request *request);

/* execute_schedule.c ------------------------------------------------------------------------------
 */

/* Executes the schedule as far as possible without blocking. */
void tsr__request_advance(tsr_request *request);

/* cancel_request.c --------------------------------------------------------------------------------
 */

/* Cancels a request with messages in flight. Afterwards nothing accesses the caller's buffers.
 * Blocks for at most 60 ms. */
void tsr__request_cancel(tsr_request *request, tsr_status status, const char *why);
/* Frees the buffers that cancelled requests have left because their messages never completed. The
 * transport must have been destroyed, so that nothing writes to them any more. */
void tsr__job_free_retained(tsr__job *job);

/* request_memory.c --------------------------------------------------------------------------------
 */

/* Creates a request of `comm` with an empty schedule. */
tsr_status tsr__request_create(tsr_comm *comm, tsr_request **out) TSR_NODISCARD;
/* Frees a request, or keeps it for reuse. */
void tsr__request_release(tsr_request *request);
/* Separates a completed request from its communicator, which is about to be freed. The handle stays
 * valid. */
void tsr__request_detach(tsr_request *request);
/* Allocates the request's memory for its schedule: temporary elements and messages. */
tsr_status tsr__request_allocate(tsr_request *request) TSR_NODISCARD;
/* Completes a request, none of whose messages may be in flight. The request exists until it is
 * released. */
void tsr__request_finish(tsr_request *request, tsr_status status);

#endif
