/* Communicators that have failed or were destroyed here: what others have still sent to them is
 * thrown away for a while, so that these need not cut the connection to get their memory back. */
#include "comm/job.h"
#include "comm/progress/tags.h"

#define WHILE_NS TSR__SECOND

void tsr__job_bury(tsr__job *job, uint32_t comm)
{
    struct tsr__grave *grave = &job->graves[job->next_grave++ % TSR__GRAVES];
    grave->comm = comm;
    grave->until_ns = tsr__deadline_ns(WHILE_NS);
    job->is_haunted = true;
}

void tsr__job_discard(tsr__job *job)
{
    const uint64_t now = tsr__now_ns();
    job->is_haunted = false;
    for (int i = 0; i < TSR__GRAVES; i++) {
        const struct tsr__grave *grave = &job->graves[i];
        if (now >= grave->until_ns)
            continue;
        tsr__transport_discard(job->transport, tsr__tag_collective(grave->comm, 0, 0, 0),
                               TSR__TAG_COMM_MASK);
        tsr__transport_discard(job->transport, tsr__tag_direct(grave->comm, 0, 0, (tsr_dtype)0),
                               TSR__TAG_COMM_MASK);
        job->is_haunted = true;
    }
}
