/* Finds the member that leads an agreement: calls the members below this one, and follows the
 * leader. */
#include "comm/recovery/agree_state.h"

#include "base/error.h"

#define MS UINT64_C(1000000)
/* A member counts as cut off if connecting to it takes longer than this: if its host can be
 * reached, the host's kernel accepts a connection sooner. */
#define CUT_OFF_NS (500 * MS)
/* If a leader that this member has joined sends nothing for this time, it counts as lost. */
#define SILENCE_NS (1000 * MS)

/* Joins the leader `member`. If this process was leading, it stops, because `member` is lower; the
 * members that have joined this process then call `member`, too. */
static tsr_status follow(tsr__agreement *a, int member)
{
    if (a->following >= 0 && a->following != member)
        tsr__link_close(&a->to[a->following]);
    a->following = member;
    a->heard_ns = tsr__now_ns();
    if (!a->leading)
        return TSR_OK;
    a->leading = false;
    for (int i = 0; i < a->caller_count; i++) {
        if (a->callers[i].has_joined) {
            a->callers[i].has_joined = false;
            TSR__TRY(tsr__agreement_place(a, &a->callers[i]));
        }
    }
    return TSR_OK;
}

/* Handles the decision of the leader: stores it and, if this process is a member of the new
 * generation, makes the rendezvous. */
static tsr_status enter(tsr__agreement *a, int leader, const uint8_t *note, uint64_t size)
{
    int rank = -1;
    TSR__TRY(tsr__agreement_adopt_note(a, note, size));
    if (!a->decision || a->decision->without_me || a->following != leader)
        return TSR_OK;
    for (int i = 0; i < a->decision->count; i++) {
        if (a->decision->uids[i] == a->members[a->self].card.uid)
            rank = i;
    }
    /* The decision may be an old one from a member that does not lead. The connection to that
     * member cannot become the rendezvous. */
    if (rank <= 0 || a->decision->uids[0] != a->members[leader].card.uid)
        return TSR_OK;
    TSR__TRY(tsr__rendezvous_adopt_client(rank, a->decision->count, &a->to[leader].channel,
                                          &a->rendezvous));
    a->to[leader].state = TSR__LINK_NONE; /* the rendezvous owns the connection */
    return TSR_OK;
}

static tsr_status handle_answer(tsr__agreement *a, int member)
{
    uint64_t size;
    tsr__link *link = &a->to[member];
    const uint8_t *note = tsr__link_note(link, &size);
    const uint32_t kind = size >= 4 ? tsr__wire_get_u32(note) : 0;
    tsr_status status = TSR_OK;
    if (kind == TSR__NOTE_LEADING) {
        status = follow(a, member);
    } else if (kind == TSR__NOTE_ELSEWHERE) {
        tsr__link_close(link);
        a->retry_ns[member] = tsr__now_ns() + TSR__AGREEMENT_RETRY_NS;
        a->called_ns[member] = 0;
    } else if (kind == TSR__NOTE_BEHIND && size == 12) {
        const tsr__decision *later = tsr__recovery_find(a->params->recovery, a->params->lineage,
                                                        tsr__wire_get_u32(note + 4) + 1);
        if (later && !tsr__link_is_sending(link))
            status = tsr__agreement_send_decided(link, later);
    } else if (kind == TSR__NOTE_DECIDED) {
        status = enter(a, member, note, size);
    } else if (kind == TSR__NOTE_FAILED && size == 12) {
        status = tsr__agreement_fail_majority(a, tsr__wire_get_u32(note + 4),
                                              tsr__wire_get_u32(note + 8));
    }
    if (link->state == TSR__LINK_OPEN)
        tsr__link_next(link);
    return status;
}

/* Marks a member as cut off, unless it has several addresses, of which another one may work. */
static void note_cut_off(tsr__agreement *a, int member)
{
    if (a->members[member].card.address_count == 1 && a->members[member].card.port != 0)
        a->members[member].cut_off = true;
}

static void note_lost(tsr__agreement *a, int member, bool refused)
{
    a->retry_ns[member] = tsr__now_ns() + TSR__AGREEMENT_RETRY_NS;
    a->attempts[member]++;
    if (a->following == member)
        a->following = -1;
    /* A refused connection means that the member has ended, but only if the member has one address.
     * If it has several, another host may have the address at which the connection was refused,
     * because private addresses are used in many networks. */
    if (refused && a->members[member].card.address_count == 1)
        tsr__agreement_mark_ended(a, member);
}

tsr_status tsr__agreement_advance_call(tsr__agreement *a, int member)
{
    tsr__left_out said;
    tsr__link *link = &a->to[member];
    for (;;) {
        switch (tsr__link_advance(link, &said)) {
        case TSR__LINK_NOTHING:
            if (link->state == TSR__LINK_CONNECTING && tsr__now_ns() - link->since_ns > CUT_OFF_NS)
                note_cut_off(a, member);
            return TSR_OK;
        case TSR__LINK_OPENED:
            if (link->state == TSR__LINK_OPEN)
                TSR__TRY(tsr__agreement_send_join(a, link));
            break;
        case TSR__LINK_NOTE:
            TSR__TRY(handle_answer(a, member));
            break;
        case TSR__LINK_REFUSED:
            note_lost(a, member, true);
            return TSR_OK;
        case TSR__LINK_LOST:
        /* invalid here, because only the process that has started a link sends it: treat the link
         * as lost */
        case TSR__LINK_LEFT_OUT:
            if (link->is_unreachable)
                note_cut_off(a, member);
            note_lost(a, member, false);
            return TSR_OK;
        case TSR__LINK_NO_MEMORY:
            return TSR_ERR_NO_MEMORY;
        }
    }
}

void tsr__agreement_link(tsr__agreement *a, int member, bool calls, uint64_t now)
{
    tsr__link *link = &a->to[member];
    if (link->state != TSR__LINK_NONE) {
        if (calls && !link->calls)
            tsr__link_call(link, a->members[a->self].card.uid);
        return;
    }
    if (now < a->retry_ns[member])
        return;
    tsr__link_connect(link, &a->members[member].card, a->attempts[member], calls,
                      a->members[a->self].card.uid, a->params->key);
    if (link->state == TSR__LINK_NONE) {
        if (link->is_unreachable)
            note_cut_off(a, member);
        note_lost(a, member, false);
    }
}

/* Calls the members below this one until one of them leads. If none of them answers, this process
 * leads. */
void tsr__agreement_seek(tsr__agreement *a, uint64_t now)
{
    if (a->following >= 0) {
        if (now - a->heard_ns < SILENCE_NS)
            return;
        tsr__link_close(&a->to[a->following]);
        note_lost(a, a->following, false);
    }
    for (int i = 0; i < a->self; i++) {
        if (a->members[i].ended)
            continue;
        if (a->called_ns[i] == 0)
            a->called_ns[i] = now;
        tsr__agreement_link(a, i, true, now);
        if (now - a->called_ns[i] < a->patience_ns && !a->members[i].ended)
            return;
    }
    if (a->leading)
        return;
    a->leading = true;
    a->leading_since_ns = now;
    a->beat_ns = 0;
}
