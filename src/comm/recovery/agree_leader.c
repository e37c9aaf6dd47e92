/* What the leader of an agreement does: collects the members, decides, and tells them. */
#include "comm/recovery/agree_state.h"

#include <poll.h>

#include "base/alloc.h"
#include "base/error.h"

#define MS UINT64_C(1000000)
/* The leader tells the joined members at this interval that it still leads. */
#define BEAT_NS (100 * MS)
/* The longest time to send the decision to the members. */
#define TELL_NS (1000 * MS)

/* Connects to the members that have not joined, to detect whether they have ended. */
static void watch_missing(tsr__agreement *a, uint64_t now)
{
    for (int i = a->self + 1; i < a->size; i++) {
        if (a->members[i].ended)
            continue;
        if (!tsr__agreement_has_joined(a, i))
            tsr__agreement_link(a, i, false, now);
        else if (a->to[i].state != TSR__LINK_NONE)
            tsr__link_close(&a->to[i]);
    }
}

static tsr_status beat(tsr__agreement *a, uint64_t now)
{
    if (now < a->beat_ns)
        return TSR_OK;
    a->beat_ns = now + BEAT_NS;
    for (int i = 0; i < a->caller_count; i++) {
        if (a->callers[i].has_joined && !tsr__link_is_sending(&a->callers[i].link))
            TSR__TRY(tsr__agreement_send_short(&a->callers[i].link, TSR__NOTE_LEADING, 0, 0));
    }
    return TSR_OK;
}

/* Waits, at most for TELL_NS, until all notes to the callers have been sent. */
static void flush_callers(tsr__agreement *a)
{
    tsr__left_out ignored;
    const uint64_t until_ns = tsr__deadline_ns(TELL_NS);
    for (bool again = true; again && tsr__now_ns() < until_ns;) {
        again = false;
        for (int i = 0; i < a->caller_count; i++) {
            tsr__link *link = &a->callers[i].link;
            if (!a->callers[i].has_joined || !tsr__link_is_sending(link))
                continue;
            (void)tsr__link_advance(link, &ignored);
            again = again || (link->state == TSR__LINK_OPEN && tsr__link_is_sending(link));
        }
        if (again)
            (void)poll(NULL, 0, 1);
    }
}

static tsr_status tell_failure(tsr__agreement *a, uint32_t joined, uint32_t there)
{
    flush_callers(a);
    for (int i = 0; i < a->caller_count; i++) {
        if (a->callers[i].has_joined && a->callers[i].link.state == TSR__LINK_OPEN &&
            !tsr__link_is_sending(&a->callers[i].link))
            TSR__TRY(
                tsr__agreement_send_short(&a->callers[i].link, TSR__NOTE_FAILED, joined, there));
    }
    flush_callers(a);
    return tsr__agreement_fail_majority(a, joined, there);
}

/* Sends a LEFT_OUT to each member that is left out. This happens before any member continues.
 * Otherwise a member that is left out might conclude that all others have ended. */
static void tell_left_out(tsr__agreement *a)
{
    const tsr__agreement_params *params = a->params;
    for (int i = 0; i < a->size; i++) {
        if (i == a->self || a->members[i].ended || tsr__agreement_has_joined(a, i))
            continue;
        tsr__link_leave_out(&a->to[i], &(tsr__left_out){.lineage = params->lineage,
                                                        .generation = params->generation + 1,
                                                        .uid = a->members[i].card.uid});
    }
}

/* Tells the members that have joined, and makes their connections a rendezvous. */
static tsr_status tell_decision(tsr__agreement *a)
{
    const tsr__decision *decision = a->decision;
    flush_callers(a);
    for (int i = 0; i < a->caller_count; i++) {
        tsr__caller *one = &a->callers[i];
        if (one->has_joined && one->link.state == TSR__LINK_OPEN &&
            !tsr__link_is_sending(&one->link))
            TSR__TRY(tsr__agreement_send_decided(&one->link, decision));
    }
    flush_callers(a);
    tsr__channel *channels = tsr__calloc((size_t)decision->count, sizeof *channels);
    if (!channels)
        return TSR_ERR_NO_MEMORY;
    int connected = 1;
    for (int rank = 1; rank < decision->count; rank++) {
        for (int i = 0; i < a->caller_count; i++) {
            const tsr__caller *one = &a->callers[i];
            if (one->has_joined && one->link.caller_uid == decision->uids[rank] &&
                one->link.state == TSR__LINK_OPEN && !tsr__link_is_sending(&one->link)) {
                channels[rank] = one->link.channel;
                connected++;
                break;
            }
        }
    }
    /* If a member's connection has just been lost, no rendezvous is made. The other members also
     * notice the loss, and all agree again. */
    tsr_status status = TSR_OK;
    if (connected == decision->count && decision->count > 1)
        status = tsr__rendezvous_adopt_server(decision->count, channels, &a->rendezvous);
    for (int i = 0; i < a->caller_count && a->rendezvous; i++) {
        if (a->callers[i].has_joined)
            a->callers[i].link.state = TSR__LINK_NONE; /* the rendezvous owns the connection */
    }
    tsr__free(channels);
    return status;
}

static tsr_status decide(tsr__agreement *a)
{
    int count = 0;
    uint64_t *uids = tsr__calloc((size_t)a->size, sizeof *uids);
    if (!uids)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < a->size; i++) {
        if (i == a->self || tsr__agreement_has_joined(a, i))
            uids[count++] = a->members[i].card.uid;
    }
    tell_left_out(a);
    tsr_status status = tsr__agreement_adopt(a, a->params->generation + 1, uids, count);
    if (status == TSR_OK)
        status = tell_decision(a);
    tsr__free(uids);
    return status;
}

tsr_status tsr__agreement_lead(tsr__agreement *a, uint64_t now)
{
    uint32_t joined = 0, there = 0;
    int lowest = -1;
    const tsr__agreement_params *params = a->params;
    watch_missing(a, now);
    TSR__TRY(beat(a, now));
    for (int i = 0; i < a->size; i++) {
        if (i != a->self && a->members[i].ended && !tsr__agreement_has_joined(a, i))
            continue;
        lowest = lowest < 0 ? i : lowest;
        there++;
        joined += i == a->self || tsr__agreement_has_joined(a, i);
    }
    /* With exactly half of the members, the lowest of them must take part; as the lowest member
     * that takes part leads, it must be this process. */
    const bool majority = params->without_majority || 2 * joined > there ||
                          (2 * joined == there && lowest == a->self);
    const bool settled =
        now >= params->collect_until_ns && now - a->leading_since_ns >= a->settle_ns;
    if (majority && (joined == there || settled))
        return decide(a);
    if (!majority && now + a->settle_ns >= params->deadline_ns)
        return tell_failure(a, joined, there);
    return TSR_OK;
}
