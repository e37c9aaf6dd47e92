/* Drives what is in progress: looks at messages, boards and news in turn, and sleeps where nothing
 * moves. */
#define _DEFAULT_SOURCE
#include <sched.h>

#include "comm/job.h"

#define SPIN_NS UINT64_C(100000)        /* with a processor for each rank */
#define SPIN_CROWDED_NS UINT64_C(20000) /* else others need it */
#define QUICK 200
#define QUICK_CROWDED 8

/* Requests by messages, all of whose messages have landed; and those that are in trouble. Advancing
 * one may end others, but neither starts nor releases any. */
static void advance_landed(tsr__job *job, bool also_troubled)
{
    bool again = job->landed;
    while (again) {
        job->landed = false;
        for (tsr_request *request = job->requests; request; request = request->next) {
            if (!request->done && request->turn.rounds == 0 &&
                (request->troubled ? also_troubled : request->flying == 0))
                tsr__request_advance(request);
        }
        again = job->landed;
        job->landed = job->landed || !also_troubled;
    }
}

static bool advance_boards(tsr__job *job)
{
    bool moved = false;
    for (tsr_comm *comm = job->comms; comm; comm = comm->next) {
        if (tsr__board_is_busy(comm->board))
            moved = tsr__board_advance(comm) || moved;
    }
    return moved;
}

bool tsr__job_drive(tsr__job *job)
{
    if (!job->transport)
        return false;
    bool moved = tsr__transport_progress(job->transport);
    /* What others have done first, then what they say, and then what is amiss: they may have said
     * why. */
    advance_landed(job, false);
    moved = advance_boards(job) || moved;
    moved = tsr__control_drive(job) || moved;
    for (tsr_comm *comm = job->comms; comm; comm = comm->next) {
        if (comm->anyone_left || tsr__transport_lost_count(job->transport) > 0)
            tsr__comm_check_gone(comm);
    }
    advance_landed(job, true);
    if (job->is_haunted)
        tsr__job_discard(job);
    return moved;
}

void tsr__job_listen(tsr__job *job)
{
    for (int i = 0; i < 16 && tsr__job_drive(job); i++)
        ;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* On the board, before anything else is looked at. */
static void drive_board(tsr_request *request)
{
    tsr_comm *comm = request->comm;
    const int most = request->job->is_crowded ? QUICK_CROWDED : QUICK;
    for (int i = 0; i < most && !request->done; i++) {
        (void)tsr__board_advance(comm);
        if (!request->done)
            relax();
    }
}

static void set_sleeping(const tsr__job *job, bool sleeping)
{
    for (tsr_comm *comm = job->comms; comm; comm = comm->next) {
        if (tsr__board_is_busy(comm->board))
            tsr__board_set_sleeping(comm->board, sleeping);
    }
}

/* Whoever shows something after this rank has said that it sleeps, wakes it; what was shown before
 * is seen now. */
static void doze(tsr__job *job, uint64_t wake_ns)
{
    set_sleeping(job, true);
    atomic_thread_fence(memory_order_seq_cst);
    if (!tsr__job_drive(job))
        tsr__transport_sleep(job->transport, wake_ns);
    set_sleeping(job, false);
}

void tsr__request_drive(tsr_request *request)
{
    tsr__job *job = request->job;
    const uint64_t spin_ns = job->is_crowded ? SPIN_CROWDED_NS : SPIN_NS;
    const unsigned look = job->is_crowded || request->turn.rounds > 0 ? 1 : 16;
    uint64_t idle_since = 0;
    unsigned idle = 0, turns = 0;
    while (!request->done) {
        if (request->turn.rounds > 0) {
            drive_board(request);
            if (request->done)
                return;
        }
        /* Also where something else always moves, such as messages to the dead, time passes. */
        if (++turns % 1024 == 0)
            (void)tsr__job_tick(job, tsr__now_ns());
        if (tsr__job_drive(job)) {
            idle_since = 0;
            idle = 0;
            continue;
        }
        if (++idle % look != 0)
            continue;
        const uint64_t now = tsr__now_ns();
        if (idle_since == 0)
            idle_since = now;
        if (now - idle_since < spin_ns) {
            /* To whom this rank waits for, perhaps. */
            sched_yield();
            continue;
        }
        const uint64_t wake_ns = tsr__job_tick(job, now);
        if (!request->done)
            doze(job, wake_ns);
    }
}
