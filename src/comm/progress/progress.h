/* The progress loop, which moves all operations of a job forward, and requests from start to end.
 * Operations only progress inside the library's calls: there is no thread. */
#ifndef TSR_COMM_PROGRESS_PROGRESS_H
#define TSR_COMM_PROGRESS_PROGRESS_H

#include "comm/job.h"

/* progress.c ----------------------------------------------------------------------------------- */

/* Advances everything that can advance, without blocking. Returns true if something did. */
bool tsr__job_progress(tsr__job *job);
/* Repeats tsr__job_progress until nothing moves, or a few times at most. */
void tsr__job_progress_all(tsr__job *job);
/* Checks processes, grace periods and deadlines. Returns when it must be called next. */
uint64_t tsr__job_tick(tsr__job *job, uint64_t now_ns);
/* Causes the effects of state changes that failure/ has recorded: sends questions; reports a
 * failure to the other ranks and cancels the failed communicator's requests. Blocks for 60 ms per
 * request at most. Every function that may record such a change calls this before it returns to the
 * caller. Returns true if there was something to do. */
bool tsr__job_apply(tsr__job *job);

/* Starts a request whose call is set and whose schedule or shared-memory operation is prepared.
 * After TSR_OK, a failure is the communicator's. */
tsr_status tsr__request_start(tsr_request *request) TSR_NODISCARD;
/* Blocks until the request is done. */
void tsr__request_block(tsr_request *request);

/* execute.c ------------------------------------------------------------------------------------ */

/* Executes the schedule as far as possible without blocking. */
void tsr__request_advance(tsr_request *request);

/* cancel.c ------------------------------------------------------------------------------------- */

/* Ends a request with messages in flight. Afterwards nothing accesses the caller's buffers. Blocks
 * for 60 ms at most. */
void tsr__request_cancel(tsr_request *request, tsr_status status, const char *why);
/* Frees the buffers of messages that never completed; the transport must be gone. */
void tsr__job_free_retained(tsr__job *job);

/* request.c ------------------------------------------------------------------------------------ */

/* A request of `comm` with an empty schedule. */
tsr_status tsr__request_create(tsr_comm *comm, tsr_request **out) TSR_NODISCARD;
/* Frees a request, or keeps it for the next one. */
void tsr__request_release(tsr_request *request);
/* Separates a request that is done from its communicator, which ends. The handle stays valid. */
void tsr__request_detach(tsr_request *request);
/* Allocates what the schedule needs. */
tsr_status tsr__request_allocate(tsr_request *request) TSR_NODISCARD;
/* The request is done; none of its messages is in flight. It stays until it is released. */
void tsr__request_finish(tsr_request *request, tsr_status status);

#endif
