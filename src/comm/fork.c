/* Children of fork(). What a rank has is no longer the child's alone: the board, the connections,
 * what wakes it. Whoever touches these there takes the rank's turns, and UCX ends both processes
 * when it is cleaned up; so a child is told so, and nothing is touched. */
#include <pthread.h>
#include <stdio.h>

#include "base/error.h"
#include "comm/job.h"

static unsigned generation; /* of processes: one more in each child */
static int failure;

static void count_child(void)
{
    generation++;
}

static void watch(void)
{
    failure = pthread_atfork(NULL, NULL, count_child);
}

tsr_status tsr__job_claim(tsr__job *job)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch);
    job->generation = generation;
    return failure == 0 ? TSR_OK : TSR_ERR_NO_MEMORY;
}

bool tsr__job_is_inherited(const tsr__job *job)
{
    return job->generation != generation;
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
