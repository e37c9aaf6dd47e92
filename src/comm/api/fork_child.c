/* Children of fork(). A child's copy of a communicator has the same slots, connections and file
 * descriptors as the parent's. If a child used them, it would take part in the parent's operations.
 * If a child cleaned up UCX, UCX would break in both processes. So every call fails in a child and
 * changes nothing. */
#include "base/fork.h"

#include <stdio.h>

#include "comm/api/comm.h"
#include "comm/progress/progress.h"

bool tsr__job_is_inherited(const tsr__job *job)
{
    return tsr__fork_inherited(job->generation);
}

#define WHOSE "the communicator is that of the process that forked this one"

tsr_status tsr__job_refuse_child(const tsr__job *job, const char *name)
{
    TSR__REQUIRE(!tsr__job_is_inherited(job), "%s: " WHOSE, name);
    return TSR_OK;
}

void tsr__request_leave_to_parent(tsr_request *request)
{
    char text[TSR__CALL_TEXT];
    if (request->done || !tsr__job_is_inherited(request->job))
        return;
    (void)snprintf(request->why, sizeof request->why, "%s: " WHOSE,
                   tsr__call_format(&request->call, text));
    tsr__request_finish(request, TSR_ERR_INVALID);
}
