/* The workers' threads, and the queue between them and the caller's thread. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/fork.h"
#include "loader/loader.h"

/* Returns the slot of the first queued batch for which this worker is responsible, or NULL. The
 * caller must hold the lock. */
static tsr__slot *next_slot(const tsr__worker *worker)
{
    const tsr_loader *loader = worker->loader;
    uint64_t count = (uint64_t)loader->params.workers, id = (uint64_t)worker->self.id;
    uint64_t batch = loader->head + (count + id - loader->head % count) % count;
    for (; batch < loader->tail; batch += count) {
        tsr__slot *slot = tsr__slot_of(loader, batch);
        if (slot->state == TSR__SLOT_QUEUED)
            return slot;
    }
    return NULL;
}

static void *work(void *argument)
{
    tsr__worker *worker = argument;
    tsr_loader *loader = worker->loader;
    pthread_mutex_lock(&loader->lock);
    while (!loader->stopping) {
        tsr__slot *slot = next_slot(worker);
        if (slot == NULL) {
            pthread_cond_wait(&worker->wake, &loader->lock);
            continue;
        }
        slot->state = TSR__SLOT_BUSY;
        pthread_mutex_unlock(&loader->lock);
        tsr__slot_state state = tsr__loader_run(worker, slot);
        pthread_mutex_lock(&loader->lock);
        slot->state = atomic_load(&slot->abandoned) ? TSR__SLOT_FREE : state;
        atomic_store(&slot->abandoned, false);
        pthread_cond_signal(&loader->done);
    }
    pthread_mutex_unlock(&loader->lock);
    tsr__loader_worker_end(worker);
    return NULL;
}

/* Lets tests make thread functions fail in the same way as allocations. Returns an errno, or 0 for
 * no failure. */
static int injected(const char *what)
{
    return tsr__fault_hit(TSR__FAULT_ALLOC, what) ? EAGAIN : 0;
}

/* Converts `error`, an errno or 0, to a status. */
static tsr_status status_of_errno(int error, const char *what)
{
    char text[128];
    if (error == 0)
        return TSR_OK;
    if (strerror_r(error, text, sizeof text) != 0)
        text[0] = '\0';
    return tsr__fail(TSR_ERR_NO_MEMORY, "%s: %s", what, text);
}

static tsr_status make_lock(pthread_mutex_t *out)
{
    int error = injected("pthread_mutex_init");
    if (error == 0)
        error = pthread_mutex_init(out, NULL);
    return status_of_errno(error, "loader: pthread_mutex_init");
}

/* Creates a condition variable whose timeouts use the monotonic clock, because changes of the
 * system time do not affect this clock. */
static tsr_status make_condition(pthread_cond_t *out)
{
    pthread_condattr_t attributes;
    int error = injected("pthread_cond_init");
    if (error == 0)
        error = pthread_condattr_init(&attributes);
    if (error == 0) {
        error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        if (error == 0)
            error = pthread_cond_init(out, &attributes);
        pthread_condattr_destroy(&attributes);
    }
    return status_of_errno(error, "loader: pthread_cond_init");
}

static tsr_status start_thread(tsr__worker *worker)
{
    char what[64];
    (void)snprintf(what, sizeof what, "loader: worker %d of %d could not be started",
                   worker->self.id, worker->loader->params.workers);
    int error = injected("pthread_create");
    if (error == 0)
        error = pthread_create(&worker->thread, NULL, work, worker);
    return status_of_errno(error, what);
}

/* Gives the set of signals that worker threads block: all except synchronous ones, which an
 * instruction of the thread itself causes. The other threads of the process handle the blocked
 * signals. */
static void signals_for_others(sigset_t *out)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigfillset(out);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(out, own[i]);
}

static tsr_status start_threads(tsr_loader *loader)
{
    sigset_t blocked, before;
    tsr_status status = TSR_OK;
    signals_for_others(&blocked);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    while (status == TSR_OK && loader->started < loader->params.workers) {
        status = start_thread(&loader->workers[loader->started]);
        loader->started += status == TSR_OK;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static bool is_inherited(const tsr_loader *loader)
{
    return loader->params.workers > 0 && tsr__fork_inherited(loader->generation);
}

tsr_status tsr__loader_check_caller(const tsr_loader *loader, const char *what)
{
    TSR__REQUIRE(!tsr__loader_is_running(loader),
                 "%s: called by a function of this loader's params, which must not use the loader",
                 what);
    TSR__REQUIRE(!is_inherited(loader),
                 "%s: the loader's workers belong to the process that forked this one", what);
    return TSR_OK;
}

tsr_status tsr__loader_start(tsr_loader *loader)
{
    TSR__TRY(tsr__fork_generation(&loader->generation));
    TSR__TRY(make_lock(&loader->lock));
    loader->have_lock = true;
    TSR__TRY(make_condition(&loader->done));
    loader->have_done = true;
    for (; loader->made < loader->params.workers; loader->made++)
        TSR__TRY(make_condition(&loader->workers[loader->made].wake));
    return start_threads(loader);
}

/* Frees all slots that no worker is loading, and marks the others as abandoned. The caller must
 * hold the lock. */
static void abandon(tsr_loader *loader)
{
    for (uint64_t i = 0; i < loader->slot_count; i++) {
        tsr__slot *slot = &loader->slots[i];
        if (slot->state == TSR__SLOT_BUSY)
            atomic_store(&slot->abandoned, true);
        else
            slot->state = TSR__SLOT_FREE;
    }
}

void tsr__loader_stop(tsr_loader *loader)
{
    if (is_inherited(loader)) /* another thread may have held the lock during fork() */
        return;
    if (loader->started > 0) {
        pthread_mutex_lock(&loader->lock);
        loader->stopping = true;
        abandon(loader);
        for (int i = 0; i < loader->started; i++)
            pthread_cond_signal(&loader->workers[i].wake);
        pthread_mutex_unlock(&loader->lock);
        for (int i = 0; i < loader->started; i++)
            pthread_join(loader->workers[i].thread, NULL);
    } else if (loader->workers != NULL && loader->params.workers == 0) {
        tsr__loader_worker_end(&loader->workers[0]);
    }
    for (int i = 0; i < loader->made; i++)
        pthread_cond_destroy(&loader->workers[i].wake);
    if (loader->have_done)
        pthread_cond_destroy(&loader->done);
    if (loader->have_lock)
        pthread_mutex_destroy(&loader->lock);
}

/* Queues a slot and wakes the worker that is responsible for it. The caller must hold the lock. */
static void queue(tsr_loader *loader, tsr__slot *slot)
{
    slot->state = TSR__SLOT_QUEUED;
    if (loader->params.workers > 0)
        pthread_cond_signal(&tsr__loader_worker_of(loader, slot->batch)->wake);
}

void tsr__loader_append(tsr_loader *loader, tsr__slot_state state)
{
    pthread_mutex_lock(&loader->lock);
    tsr__slot *slot = tsr__slot_of(loader, loader->tail++);
    if (state == TSR__SLOT_QUEUED)
        queue(loader, slot);
    else
        slot->state = state;
    pthread_mutex_unlock(&loader->lock);
}

void tsr__loader_retry(tsr_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    queue(loader, tsr__slot_of(loader, loader->head));
    pthread_mutex_unlock(&loader->lock);
}

void tsr__loader_take(tsr_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    tsr__slot_of(loader, loader->head++)->state = TSR__SLOT_FREE;
    pthread_mutex_unlock(&loader->lock);
}

void tsr__loader_go_to(tsr_loader *loader, uint64_t position)
{
    pthread_mutex_lock(&loader->lock);
    abandon(loader);
    loader->head = loader->tail = position;
    pthread_mutex_unlock(&loader->lock);
    loader->ended = false;
    loader->failed = false;
    loader->sampler_status = TSR_OK;
}

bool tsr__loader_busy(tsr_loader *loader, const tsr__slot *slot)
{
    pthread_mutex_lock(&loader->lock);
    bool busy = slot->state == TSR__SLOT_BUSY;
    pthread_mutex_unlock(&loader->lock);
    return busy;
}

bool tsr__loader_wait(tsr_loader *loader, const tsr__slot *slot, const struct timespec *deadline,
                      tsr__slot_state *state)
{
    int error = 0;
    pthread_mutex_lock(&loader->lock);
    while ((slot->state == TSR__SLOT_QUEUED || slot->state == TSR__SLOT_BUSY) && error == 0)
        error = deadline != NULL ? pthread_cond_timedwait(&loader->done, &loader->lock, deadline)
                                 : pthread_cond_wait(&loader->done, &loader->lock);
    /* Read the state also after a timeout: the batch may have been loaded
     * just before the deadline. */
    *state = slot->state;
    pthread_mutex_unlock(&loader->lock);
    return *state != TSR__SLOT_QUEUED && *state != TSR__SLOT_BUSY;
}

void tsr__loader_deadline(uint64_t timeout_ns, struct timespec *out)
{
    const uint64_t second_ns = 1000000000;
    clock_gettime(CLOCK_MONOTONIC, out);
    uint64_t ns = (uint64_t)out->tv_nsec + timeout_ns % second_ns;
    out->tv_sec += (time_t)(timeout_ns / second_ns + ns / second_ns);
    out->tv_nsec = (long)(ns % second_ns);
}
