#define _DEFAULT_SOURCE
#include "comm/progress/progress.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/checked.h"
#include "base/error.h"
#include "comm/failure/failure.h"
#include "comm/progress/control_channel.h"

#define MS UINT64_C(1000000)
/* How long a waiting rank checks again and again (spins) before it sleeps. The time is
 * SPIN_OVERSUBSCRIBED_NS if other ranks need the processor. It is SPIN_LONG_NS if the last wait
 * with a sleep took less than SPIN_LONG_NS in total, as on a network with some latency: sleeping
 * and waking would take most of such a short wait. */
#define SPIN_NS UINT64_C(100000)
#define SPIN_OVERSUBSCRIBED_NS UINT64_C(60000)
#define SPIN_LONG_NS UINT64_C(400000)
/* The number of times that a waiting rank polls shared memory before it runs the complete progress
 * loop. */
#define SHM_POLLS 200
#define SHM_POLLS_OVERSUBSCRIBED 8

/* The effects of failures and questions that other files have recorded ----------------------------
 */

static void send_questions(const tsr_request *request)
{
    tsr_comm *comm = request->comm;
    for (int rank = 0; rank < comm->size; rank++) {
        const bool asked = request->question_to >= 0 ? rank == request->question_to
                                                     : comm->size <= TSR__MANY_RANKS ||
                                                           tsr__request_awaits(request, rank);
        if (!asked)
            continue;
        comm->peers[rank].asked = request->question;
        tsr__control_ask(comm, rank, request->question, &request->call);
    }
}

static void send_pending_questions(tsr__job *job)
{
    for (tsr_request *request = job->requests; request; request = request->next) {
        if (request->must_ask && tsr__request_is_running(request))
            send_questions(request);
        request->must_ask = false;
    }
}

static void apply_failure(tsr_comm *comm)
{
    comm->must_cancel = false;
    if (comm->must_announce)
        tsr__control_abort(comm, -1);
    tsr__tombstone_add(comm->job, comm->id);
    tsr__shm_stop(comm->shm);
    for (tsr_request *request = comm->job->requests; request; request = request->next) {
        if (request->comm == comm && !request->done)
            tsr__request_cancel(request, comm->status, comm->why);
    }
}

bool tsr__job_apply(tsr__job *job)
{
    if (!job->must_apply)
        return false;
    job->must_apply = false;
    send_pending_questions(job);
    for (tsr_comm *comm = job->comms; comm; comm = comm->next) {
        if (comm->must_cancel)
            apply_failure(comm);
    }
    return true;
}

/* The loop ----------------------------------------------------------------------------------------
 */

/* Advances the requests whose current round has no messages in flight. If `also_failed` is true,
 * also handles requests with a failed message. */
static void advance_requests(tsr__job *job, bool also_failed)
{
    bool again = job->has_completions;
    while (again) {
        job->has_completions = false;
        for (tsr_request *request = job->requests; request; request = request->next) {
            if (tsr__request_is_running(request) && !request->in_shm &&
                (request->has_failed_message ? also_failed : request->in_flight == 0))
                tsr__request_advance(request);
        }
        again = job->has_completions;
        job->has_completions = job->has_completions || !also_failed;
    }
}

/* Fails the communicator because rank shm_first + `index` has called a different operation in
 * shared memory. */
static void fail_mismatch(tsr_comm *comm, int index)
{
    tsr__call theirs, before;
    const int rank = comm->shm_first + index;
    tsr__shm_call_of(comm->shm, index, &theirs, &before);
    tsr__comm_compare(comm, rank, &theirs, &before);
    /* tsr__comm_compare found no difference: this rank has not made the call with that sequence
     * number yet */
    if (comm->status == TSR_OK) {
        const tsr__call *mine = tsr__shm_call(comm->shm);
        tsr__comm_fail_mismatch(comm, mine, rank,
                                before.sequence == mine->sequence ? &before : &theirs);
    }
}

/* Called when an operation in shared memory has completed: completes the request, or ends its inner
 * step. */
static void end_shm_operation(tsr_request *request)
{
    if (request->in_shm) {
        tsr__request_finish(request, TSR_OK);
        return;
    }
    request->inner_running = false;
    tsr__request_advance(request);
}

/* Advances the communicator's operations in shared memory as far as possible, and carries out their
 * events (wakes ranks, completes requests). Returns true if any has advanced. */
static bool advance_shm(tsr_comm *comm)
{
    tsr__shm_event event;
    bool moved = false;
    do {
        moved = tsr__shm_advance(comm->shm, &event) || moved;
        for (int rank = comm->shm_first; event.wake != 0; rank++, event.wake >>= 1) {
            if (event.wake & 1)
                tsr__control_wake(comm, rank);
        }
        if (event.completed)
            end_shm_operation(event.completed->owner);
        if (event.mismatch >= 0)
            fail_mismatch(comm, event.mismatch);
    } while (event.happened && event.mismatch < 0 && comm->status == TSR_OK);
    return moved;
}

static bool advance_all_shm(tsr__job *job)
{
    bool moved = false;
    for (tsr_comm *comm = job->comms; comm; comm = comm->next) {
        if (comm->status == TSR_OK && tsr__shm_is_busy(comm->shm))
            moved = advance_shm(comm) || moved;
    }
    return moved;
}

bool tsr__job_progress(tsr__job *job)
{
    if (!job->transport)
        return false;
    bool moved = tsr__transport_progress(job->transport);
    /* First data of other ranks, then their control messages, and failed messages last, because a
     * control message may say why a message has failed. */
    advance_requests(job, false);
    moved = advance_all_shm(job) || moved;
    moved = tsr__control_progress(job) || moved;
    for (tsr_comm *comm = job->comms; comm; comm = comm->next) {
        if (comm->has_departures || tsr__transport_lost_count(job->transport) > 0)
            tsr__comm_check_peers(comm);
    }
    advance_requests(job, true);
    moved = tsr__job_apply(job) || moved;
    if (job->has_tombstones)
        tsr__tombstones_discard(job);
    return moved;
}

void tsr__job_progress_all(tsr__job *job)
{
    for (int i = 0; i < 16 && tsr__job_progress(job); i++)
        ;
}

uint64_t tsr__job_tick(tsr__job *job, uint64_t now_ns)
{
    if (now_ns >= job->poll_ns) {
        tsr__transport_poll_processes(job->transport);
        job->poll_ns = now_ns + MS;
    }
    /* Before a grace period ends, handle everything that has arrived during it. */
    if (tsr__job_has_ended_grace_period(job, now_ns))
        tsr__job_progress_all(job);
    if (tsr__transport_is_stuck(job->transport)) {
        for (tsr_comm *comm = job->comms; comm; comm = comm->next)
            tsr__comm_fail_stuck(comm);
    }
    const uint64_t next_ns = tsr__job_check_deadlines(job, now_ns);
    (void)tsr__job_apply(job);
    return next_ns;
}

/* Starting and waiting ----------------------------------------------------------------------------
 */

tsr_status tsr__request_start(tsr_request *request)
{
    tsr_comm *comm = request->comm;
    if (!request->in_shm) {
        TSR__TRY(tsr__request_allocate(request));
        tsr__request_start_clock(request, tsr__now_ns());
    }
    if (request->call.kind < TSR__CALL_SEND) {
        request->call.sequence = comm->sequence++;
        request->call.history = comm->history;
        request->signature = tsr__call_signature(&request->call);
        comm->history = tsr__call_history(&request->call);
        comm->past[request->call.sequence % TSR__COMM_PAST] = request->call;
    }
    comm->running++;
    request->done = false;
    if (request->is_hierarchical)
        request->hierarchical_number = comm->hierarchical_started++;
    if (request->in_shm) {
        const tsr__call *before = request->call.sequence > 0
                                      ? tsr__comm_past_call(comm, request->call.sequence - 1)
                                      : NULL;
        tsr__shm_add(comm->shm, &request->shm, before ? before : &request->call);
    } else {
        tsr__request_advance(request);
    }
    if (tsr__shm_is_busy(comm->shm))
        (void)advance_shm(comm);
    (void)tsr__job_apply(request->job);
    return TSR_OK;
}

static void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Polls shared memory a number of times, which is much faster than the complete progress loop. */
static void spin_shm(tsr_request *request)
{
    const int polls = request->job->is_oversubscribed ? SHM_POLLS_OVERSUBSCRIBED : SHM_POLLS;
    for (int i = 0;
         i < polls && tsr__request_is_running(request) && tsr__shm_is_busy(request->comm->shm);
         i++) {
        (void)advance_shm(request->comm);
        if (!request->done)
            cpu_pause();
    }
}

static void set_sleeping(const tsr__job *job, bool sleeping)
{
    for (tsr_comm *comm = job->comms; comm; comm = comm->next) {
        if (tsr__shm_is_busy(comm->shm))
            tsr__shm_set_sleeping(comm->shm, sleeping);
    }
}

/* Sleeps until something arrives. First sets this rank's flag `sleeping`. The last rank that
 * publishes a round in shared memory wakes all ranks whose flag it sees (publish() in
 * shm/shm_operations.c). If it has published before this flag was set, the progress call below
 * finds its data. */
static void sleep_until(tsr__job *job, uint64_t wake_ns)
{
    set_sleeping(job, true);
    atomic_thread_fence(memory_order_seq_cst);
    if (!tsr__job_progress(job))
        tsr__transport_sleep(job->transport, tsr__control_is_behind(job)
                                                 ? tsr__min_u64(wake_ns, tsr__deadline_ns(MS))
                                                 : wake_ns);
    set_sleeping(job, false);
}

static uint64_t spin_ns(const tsr__job *job)
{
    if (job->spins_long)
        return SPIN_LONG_NS;
    return job->is_oversubscribed ? SPIN_OVERSUBSCRIBED_NS : SPIN_NS;
}

void tsr__request_block(tsr_request *request)
{
    tsr__job *job = request->job;
    const unsigned clock_every = job->is_oversubscribed || request->in_shm ? 1 : 16;
    uint64_t idle_since = 0;
    unsigned idle = 0, rounds = 0;
    while (!request->done) {
        if (tsr__shm_is_busy(request->comm->shm)) {
            spin_shm(request);
            if (request->done)
                return;
        }
        /* Check deadlines now and then even if every call of tsr__job_progress advances something,
         * for example because messages for a failed communicator keep arriving and are discarded.
         */
        if (++rounds % 1024 == 0)
            (void)tsr__job_tick(job, tsr__now_ns());
        if (tsr__job_progress(job)) {
            idle_since = 0;
            idle = 0;
            continue;
        }
        if (++idle % clock_every != 0)
            continue;
        const uint64_t now = tsr__now_ns();
        if (idle_since == 0)
            idle_since = now;
        if (now - idle_since < spin_ns(job)) {
            /* give up the processor: the rank that this one waits for may need it */
            sched_yield();
            continue;
        }
        const uint64_t wake_ns = tsr__job_tick(job, now);
        if (request->done)
            return;
        sleep_until(job, wake_ns);
        job->spins_long = tsr__now_ns() - idle_since < SPIN_LONG_NS;
    }
}
