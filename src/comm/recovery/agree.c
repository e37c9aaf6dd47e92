#include "comm/recovery/agree.h"

#include <poll.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "comm/recovery/agree_state.h"

#define MS UINT64_C(1000000)
#define PATIENCE_NS (150 * MS)
#define SETTLE_NS (400 * MS)
/* The longest sleep. It is short, because the old communicator must be advanced again and again,
 * too. */
#define SLEEP_MS 5

static void sleep_until_event(tsr__agreement *a)
{
    nfds_t count = 0;
    a->polls[count++] = (struct pollfd){.fd = a->params->recovery->listener, .events = POLLIN};
    for (int i = 0; i < a->size; i++) {
        if (a->to[i].state != TSR__LINK_NONE)
            a->polls[count++] =
                (struct pollfd){.fd = a->to[i].channel.fd, .events = tsr__link_events(&a->to[i])};
    }
    for (int i = 0; i < a->caller_count; i++) {
        const tsr__link *link = &a->callers[i].link;
        if (link->state != TSR__LINK_NONE)
            a->polls[count++] =
                (struct pollfd){.fd = link->channel.fd, .events = tsr__link_events(link)};
    }
    (void)poll(a->polls, count, SLEEP_MS);
}

static tsr_status step(tsr__agreement *a)
{
    a->params->progress(a->params->user, a->members, a->size);
    for (int i = 0; i < a->size; i++) {
        a->members[i].ended = a->members[i].ended && !a->members[i].cut_off;
        if (a->members[i].ended)
            tsr__agreement_mark_ended(a, i);
    }
    TSR__TRY(tsr__agreement_accept(a));
    for (int i = 0; i < a->caller_count && !a->decision; i++) {
        if (a->callers[i].link.state != TSR__LINK_NONE)
            TSR__TRY(tsr__agreement_advance_caller(a, &a->callers[i]));
    }
    for (int i = 0; i < a->size && !a->decision; i++)
        TSR__TRY(tsr__agreement_advance_call(a, i));
    if (a->decision)
        return TSR_OK;
    const uint64_t now = tsr__now_ns();
    tsr__agreement_seek(a, now);
    if (a->leading && a->following < 0)
        TSR__TRY(tsr__agreement_lead(a, now));
    if (!a->decision && now >= a->params->deadline_ns)
        return tsr__fail(TSR_ERR_TIMEOUT, "the ranks have not agreed on who goes on within %.1f s",
                         (double)a->params->timeout_ns * 1e-9);
    return TSR_OK;
}

static tsr_status allocate(tsr__agreement *a)
{
    const size_t size = (size_t)a->size;
    a->caller_count = a->size + TSR__AGREEMENT_MAX_STRANGERS;
    a->to = tsr__calloc(size, sizeof *a->to);
    a->retry_ns = tsr__calloc(size, sizeof *a->retry_ns);
    a->called_ns = tsr__calloc(size, sizeof *a->called_ns);
    a->attempts = tsr__calloc(size, sizeof *a->attempts);
    a->callers = tsr__calloc((size_t)a->caller_count, sizeof *a->callers);
    a->polls = tsr__calloc(2 * size + TSR__AGREEMENT_MAX_STRANGERS + 1, sizeof *a->polls);
    if (!a->to || !a->retry_ns || !a->called_ns || !a->attempts || !a->callers || !a->polls)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < a->caller_count; i++)
        a->callers[i].member = -1;
    return TSR_OK;
}

static void finish(tsr__agreement *a)
{
    for (int i = 0; i < a->size && a->to; i++)
        tsr__link_close(&a->to[i]);
    for (int i = 0; i < a->caller_count && a->callers; i++)
        tsr__link_close(&a->callers[i].link);
    tsr__free(a->to);
    tsr__free(a->retry_ns);
    tsr__free(a->called_ns);
    tsr__free(a->attempts);
    tsr__free(a->callers);
    tsr__free(a->polls);
}

tsr_status tsr__agree(const tsr__agreement_params *params, const tsr__decision **decision,
                      tsr__rendezvous **rendezvous)
{
    tsr__agreement a = {.params = params,
                        .members = params->members,
                        .size = params->size,
                        .self = params->self,
                        .patience_ns = tsr__min_u64(PATIENCE_NS, params->timeout_ns / 8),
                        .settle_ns = tsr__min_u64(SETTLE_NS, params->timeout_ns / 8),
                        .following = -1};
    tsr_status status = allocate(&a);
    while (status == TSR_OK && !a.decision) {
        status = step(&a);
        if (status == TSR_OK && !a.decision)
            sleep_until_event(&a);
    }
    finish(&a);
    if (status == TSR_OK && a.decision->without_me)
        status = tsr__fail(TSR_ERR_PEER_LOST,
                           "the other ranks have gone on without this rank, which did not answer "
                           "in time");
    if (status != TSR_OK)
        return status;
    *decision = a.decision;
    *rendezvous = a.rendezvous;
    return TSR_OK;
}
