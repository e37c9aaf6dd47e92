/* Ends requests whose messages still fly, so that nothing touches the caller's memory afterwards.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"

#define ABANDON_NS UINT64_C(30000000) /* for what flies to land by itself, then by force */

static bool has_landed(tsr_request *request, uint64_t until_ns)
{
    tsr__transport *transport = request->job->transport;
    while (request->flying > 0) {
        if (request->job->is_haunted)
            tsr__job_discard(request->job);
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

/* What cannot be called back needs its peer; that one is cut off, so that nobody touches the
 * caller's memory any more. */
static void cut_flying(tsr_request *request)
{
    for (size_t i = request->round_start; i < request->round_end; i++) {
        const tsr__message *message = message_at(request, i);
        if (message->state == TSR__MESSAGE_IN_FLIGHT)
            tsr__transport_close_peer(request->job->transport, message->peer,
                                      "it did not take or finish a message in time");
    }
}

struct tsr__left {
    struct tsr__left *next;
    tsr__message *messages;
    void *temp;
};

/* Seldom seen, where a machine is very busy. UCX may still write to what a message has, and says so
 * when it does: by then the request is another operation's. Where there is no memory for a note of
 * it, it is lost. */
static void leave_behind(tsr_request *request)
{
    struct tsr__left *left = tsr__calloc(1, sizeof *left);
    for (size_t i = request->round_start; i < request->round_end; i++)
        message_at(request, i)->landed = NULL;
    if (left) {
        *left = (struct tsr__left){request->job->left, request->messages, request->temp};
        request->job->left = left;
    }
    request->messages = NULL;
    request->message_capacity = 0;
    request->temp = NULL;
    request->temp_bytes = 0;
}

void tsr__job_free_left(tsr__job *job)
{
    while (job->left) {
        struct tsr__left *next = job->left->next;
        tsr__free(job->left->messages);
        tsr__free(job->left->temp);
        tsr__free(job->left);
        job->left = next;
    }
}

void tsr__request_abandon(tsr_request *request, tsr_status status, const char *why)
{
    const bool has_round = request->posted;
    request->leave_alone = true;
    memcpy(request->why, why, strnlen(why, sizeof request->why - 1) + 1);
    request->why[sizeof request->why - 1] = '\0';
    for (size_t i = request->round_start; has_round && i < request->round_end; i++)
        tsr__transport_cancel(request->job->transport, message_at(request, i));
    if (!has_landed(request, tsr__deadline_ns(ABANDON_NS))) {
        cut_flying(request);
        if (!has_landed(request, tsr__deadline_ns(ABANDON_NS))) {
            tsr__log(TSR_LOG_ERROR, "comm: a message of %s never landed",
                     tsr__call_name(request->call.kind));
            leave_behind(request);
        }
    }
    tsr__request_finish(request, status);
}
