/* Cancels requests whose messages are in flight. Afterwards nothing accesses the caller's
 * memory. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/failure/failure.h"
#include "comm/progress/progress.h"

/* How long cancelling waits for messages to complete before it closes their connections, and again
 * afterwards. */
#define CANCEL_NS UINT64_C(30000000)

/* Waits until no message of the request is in flight. Returns false if `until_ns` passes before. */
static bool wait_for_messages(tsr_request *request, uint64_t until_ns)
{
    tsr__transport *transport = request->job->transport;
    while (request->in_flight > 0) {
        if (request->job->has_tombstones)
            tsr__tombstones_discard(request->job);
        if (tsr__transport_progress(transport))
            continue;
        if (tsr__now_ns() >= until_ns)
            return false;
        tsr__transport_sleep(transport, until_ns);
    }
    return true;
}

static tsr__message *message_at(tsr_request *request, size_t step)
{
    return &request->messages[step - request->round_start];
}

/* Closes the connections of messages that UCX could not cancel. Such a message completes only if
 * its peer receives or sends it, or if the connection is closed. */
static void close_peers(tsr_request *request)
{
    for (size_t i = request->round_start; i < request->round_end; i++) {
        const tsr__message *message = message_at(request, i);
        if (message->state == TSR__MESSAGE_IN_FLIGHT)
            tsr__transport_close_peer(request->job->transport, message->peer,
                                      "it did not take or finish a message in time");
    }
}

struct tsr__retained {
    struct tsr__retained *next;
    tsr__message *messages;
    void *temp;
};

/* Keeps the buffers of messages that have not completed even after their connections were closed.
 * This is rare and happens only on a very busy machine. Later, when the request belongs to another
 * operation, UCX may still write to these buffers and call back. So the request gives them up, and
 * the job frees them at its end. If the memory for recording them is exhausted, they leak. */
static void retain_buffers(tsr_request *request)
{
    struct tsr__retained *retained = tsr__calloc(1, sizeof *retained);
    for (size_t i = request->round_start; i < request->round_end; i++)
        message_at(request, i)->on_complete = NULL;
    if (retained) {
        *retained = (struct tsr__retained){
            .next = request->job->retained, .messages = request->messages, .temp = request->temp};
        request->job->retained = retained;
    }
    request->messages = NULL;
    request->message_capacity = 0;
    request->temp = NULL;
    request->temp_bytes = 0;
}

void tsr__job_free_retained(tsr__job *job)
{
    while (job->retained) {
        struct tsr__retained *next = job->retained->next;
        tsr__free(job->retained->messages);
        tsr__free(job->retained->temp);
        tsr__free(job->retained);
        job->retained = next;
    }
}

void tsr__request_cancel(tsr_request *request, tsr_status status, const char *why)
{
    const bool has_round = request->posted;
    request->is_cancelled = true;
    memcpy(request->why, why, strnlen(why, sizeof request->why - 1) + 1);
    request->why[sizeof request->why - 1] = '\0';
    for (size_t i = request->round_start; has_round && i < request->round_end; i++)
        tsr__transport_cancel(request->job->transport, message_at(request, i));
    if (!wait_for_messages(request, tsr__deadline_ns(CANCEL_NS))) {
        close_peers(request);
        if (!wait_for_messages(request, tsr__deadline_ns(CANCEL_NS))) {
            tsr__log(TSR_LOG_ERROR, "comm: a message of %s never completed",
                     tsr__call_name(request->call.kind));
            retain_buffers(request);
        }
    }
    tsr__request_finish(request, status);
}
