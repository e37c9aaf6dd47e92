/* Children of fork(). Their copy of a communicator shares the slots, the connections and the file
 * descriptors with the parent. A child that used them would take part in the parent's operations,
 * and cleaning UCX up in one process breaks it in both. So every call fails in a child, and nothing
 * is touched. */
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
