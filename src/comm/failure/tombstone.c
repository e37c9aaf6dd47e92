#include "comm/failure/failure.h"
#include "comm/tags.h"

void tsr__tombstone_add(tsr__job *job, uint32_t comm)
{
    job->tombstones[job->next_tombstone++ % TSR__TOMBSTONES] =
        (tsr__tombstone){.comm = comm, .until_ns = tsr__deadline_ns(TSR__SECOND)};
    job->has_tombstones = true;
}

void tsr__tombstones_discard(tsr__job *job)
{
    const uint64_t now = tsr__now_ns();
    job->has_tombstones = false;
    for (int i = 0; i < TSR__TOMBSTONES; i++) {
        const tsr__tombstone *tombstone = &job->tombstones[i];
        if (now >= tombstone->until_ns)
            continue;
        tsr__transport_discard(job->transport, tsr__tag_collective(tombstone->comm, 0, 0, 0),
                               TSR__TAG_COMM_MASK);
        tsr__transport_discard(job->transport, tsr__tag_direct(tombstone->comm, 0, 0, (tsr_dtype)0),
                               TSR__TAG_COMM_MASK);
        job->has_tombstones = true;
    }
}
