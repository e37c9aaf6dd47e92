/* Requests: their memory, and the job's lists of them. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "comm/progress/progress.h"

#define MAX_UNUSED 4 /* released requests that are kept for reuse, with their memory */

static void request_free(tsr_request *request)
{
    tsr__schedule_finish(&request->schedule);
    tsr__free(request->messages);
    tsr__free(request->starts);
    tsr__free(request->temp);
    tsr__free(request);
}

tsr_status tsr__request_create(tsr_comm *comm, tsr_request **out)
{
    tsr__job *job = comm->job;
    tsr_request *request = job->unused;
    if (request) {
        job->unused = request->next;
        job->unused_count--;
    } else {
        request = tsr__calloc(1, sizeof *request);
        if (!request)
            return TSR_ERR_NO_MEMORY;
    }
    request->job = job;
    request->comm = comm;
    request->previous = NULL;
    request->call = (tsr__call){0};
    request->status = TSR_OK;
    request->why[0] = '\0';
    request->done = true; /* false only from tsr__request_start until the request completes */
    request->shm.owner = request;
    request->shm.call = &request->call;
    request->shm.rounds = 0;
    request->shm.step_number = 0;
    request->in_shm = request->is_hierarchical = request->inner_running = false;
    tsr__schedule_reset(&request->schedule);
    request->send = request->recv = NULL;
    request->combine = NULL;
    request->divide = NULL;
    request->round_start = request->round_end = 0;
    request->in_flight = 0;
    request->posted = request->has_failed_message = request->is_cancelled = false;
    request->mismatch = (tsr__mismatch){.rank = -1};
    request->started_ns = request->answers_due_ns = 0;
    request->final_question = 0;
    request->must_ask = request->gave_way = false;
    request->next = job->requests;
    if (job->requests)
        job->requests->previous = request;
    job->requests = request;
    comm->held++;
    *out = request;
    return TSR_OK;
}

static void unlink_request(tsr_request *request)
{
    if (request->previous)
        request->previous->next = request->next;
    else
        request->job->requests = request->next;
    if (request->next)
        request->next->previous = request->previous;
}

void tsr__request_release(tsr_request *request)
{
    tsr__job *job = request->job;
    if (job) {
        unlink_request(request);
        request->comm->held--;
    }
    if (!job || job->unused_count >= MAX_UNUSED) {
        request_free(request);
        return;
    }
    request->comm = NULL;
    request->next = job->unused;
    job->unused = request;
    job->unused_count++;
}

void tsr__request_detach(tsr_request *request)
{
    unlink_request(request);
    request->job = NULL;
    request->comm = NULL;
}

/* Returns the number of steps in the round of the schedule that has the most. */
static size_t largest_round(const tsr__schedule *schedule)
{
    size_t most = 0, count = 0;
    for (size_t i = 0; i < schedule->count; i++) {
        count = i > 0 && schedule->steps[i].round == schedule->steps[i - 1].round ? count + 1 : 1;
        most = count > most ? count : most;
    }
    return most;
}

tsr_status tsr__request_allocate(tsr_request *request)
{
    void *messages = request->messages;
    uint64_t bytes;
    TSR__TRY(request->schedule.status);
    tsr_status status = tsr__grow(&messages, &request->message_capacity,
                                  largest_round(&request->schedule), sizeof *request->messages);
    request->messages = messages;
    TSR__TRY(status);
    if (!tsr__mul_u64(request->schedule.temp_count, request->element_bytes, &bytes) ||
        bytes > PTRDIFF_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW, "%s: %llu temporary elements are too many",
                         tsr__call_name(request->call.kind),
                         (unsigned long long)request->schedule.temp_count);
    if (bytes <= request->temp_bytes)
        return TSR_OK;
    /* Free and allocate instead of calling realloc, which would copy the old contents. */
    tsr__free(request->temp);
    request->temp_bytes = 0;
    request->temp = tsr__calloc((size_t)bytes, 1);
    if (!request->temp)
        return TSR_ERR_NO_MEMORY;
    request->temp_bytes = bytes;
    return TSR_OK;
}

void tsr__request_finish(tsr_request *request, tsr_status status)
{
    if (request->is_hierarchical) {
        request->comm->hierarchical_completed++;
        /* advance the requests: the next hierarchical operation, which has waited for this one, may
         * start */
        request->job->has_completions = true;
    }
    request->inner_running = false;
    request->status = status;
    request->done = true;
    request->comm->running--;
}
