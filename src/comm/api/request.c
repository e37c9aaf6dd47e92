/* The public functions of requests. */
#include "base/error.h"
#include "comm/api/comm.h"
#include "comm/failure/failure.h"
#include "comm/progress/progress.h"

/* Returns the methods of a request that is not a communicator's, otherwise NULL. */
static const tsr__request_methods *methods_of(const tsr_request *request)
{
    return request ? ((const tsr__request_base *)request)->methods : NULL;
}

static tsr_status take_result(tsr_request **request)
{
    tsr_request *done = *request;
    const tsr_status status = done->status;
    if (status != TSR_OK)
        (void)tsr__fail(status, "%s", done->why);
    *request = NULL;
    tsr__request_release(done);
    return status;
}

tsr_status tsr_request_test(tsr_request **request, bool *done)
{
    TSR__REQUIRE(request && done, "request_test: %s is NULL", request ? "done" : "request");
    const tsr__request_methods *methods = methods_of(*request);
    if (methods)
        return methods->test(request, done);
    tsr_request *tested = *request;
    if (tested)
        tsr__request_leave_to_parent(tested);
    if (tested && !tested->done) {
        (void)tsr__job_progress(tested->job);
        if (!tested->done)
            (void)tsr__job_tick(tested->job, tsr__now_ns());
    }
    *done = !tested || tested->done;
    return tested && *done ? take_result(request) : TSR_OK;
}

tsr_status tsr_request_wait(tsr_request **request)
{
    TSR__REQUIRE(request, "request_wait: request is NULL");
    if (!*request)
        return TSR_OK;
    const tsr__request_methods *methods = methods_of(*request);
    if (methods)
        return methods->wait(request);
    tsr__request_leave_to_parent(*request);
    if (!(*request)->done)
        tsr__request_block(*request);
    return take_result(request);
}

/* Cancels a request that is a receive if no message has matched it. No other rank can notice this.
 * Returns whether it has cancelled the request. */
static bool cancel_receive(tsr_request *request)
{
    if (request->call.kind != TSR__CALL_RECV || request->in_flight != 1)
        return false;
    request->is_cancelled = true;
    tsr__transport_cancel(request->job->transport, &request->messages[0]);
    (void)tsr__transport_progress(request->job->transport);
    if (request->in_flight > 0)
        return false;
    tsr__request_finish(request, TSR_OK);
    return true;
}

void tsr_request_cancel(tsr_request **request)
{
    char text[TSR__CALL_TEXT];
    if (!request || !*request)
        return;
    const tsr__request_methods *methods = methods_of(*request);
    if (methods) {
        methods->cancel(request);
        return;
    }
    tsr_request *cancelled = *request;
    tsr__request_leave_to_parent(cancelled);
    if (!cancelled->done && !cancel_receive(cancelled)) {
        tsr__comm_fail(cancelled->comm, true, TSR_ERR_PEER_LOST, "rank %d cancelled %s",
                       cancelled->comm->rank, tsr__call_format(&cancelled->call, text));
        (void)tsr__job_apply(cancelled->job);
    }
    *request = NULL;
    tsr__request_release(cancelled);
}
