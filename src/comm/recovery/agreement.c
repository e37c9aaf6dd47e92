#include "comm/recovery/agreement.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "comm/recovery/member_links.h"

#define MS UINT64_C(1000000)
/* How long a member that has been asked may take to answer before the next one is asked. */
#define PATIENCE_NS (150 * MS)
/* How long a member must have led before it may decide although not all members have joined. */
#define SETTLE_NS (400 * MS)
/* How long to wait before connecting to a member again. */
#define RETRY_NS (30 * MS)
/* A member counts as cut off if connecting to it takes longer than this: if its host can be
 * reached, the host's kernel accepts a connection sooner. */
#define CUT_OFF_NS (500 * MS)
/* If a leader that this member has joined sends nothing for this time, it counts as lost. */
#define SILENCE_NS (1000 * MS)
/* The leader tells the joined members at this interval that it still leads. */
#define HEARTBEAT_NS (100 * MS)
typedef struct agreement {
    const tsr__agreement_params *params;
    tsr__member *members;
    int size, self;
    tsr__member_links links;
    bool leading;
    uint64_t patience_ns,
        settle_ns; /* PATIENCE_NS and SETTLE_NS, or less if the timeout is short */
    uint64_t leading_since_ns, heartbeat_ns;
    int following;     /* the member that this one has joined; −1: none */
    uint64_t heard_ns; /* when that member last sent something */
    const tsr__decision *decision;
    tsr__rendezvous *rendezvous;
} agreement;

/* Members -----------------------------------------------------------------------------------------
 */

/* Returns the index of the member with this uid, or −1 if there is none. */
static int find_member(const agreement *a, uint64_t uid)
{
    for (int i = 0; i < a->size; i++) {
        if (a->members[i].card.uid == uid)
            return i;
    }
    return -1;
}

static uint64_t own_uid(const agreement *a)
{
    return a->members[a->self].card.uid;
}

/* Marks a member as ended. Does nothing if `member` is −1 or this process, or if the member is cut
 * off. */
static void mark_ended(agreement *a, int member)
{
    if (member < 0 || member == a->self || a->members[member].cut_off)
        return;
    a->members[member].ended = true;
    tsr__link_close(&a->links.outgoing[member].link);
    if (a->following == member)
        a->following = -1;
}

/* Marks a member as cut off, unless it has several addresses, of which another one may work. */
static void mark_cut_off(agreement *a, int member)
{
    if (a->members[member].card.address_count == 1 && a->members[member].card.port != 0)
        a->members[member].cut_off = true;
}

/* Decisions ---------------------------------------------------------------------------------------
 */

/* Stores a decision of this process or of another member. If the decision makes the next
 * generation, it is the result of the agreement. */
static tsr_status adopt_decision(agreement *a, uint32_t generation, const uint64_t *uids, int count)
{
    const tsr__agreement_params *params = a->params;
    bool includes_self = false;
    for (int i = 0; i < count; i++)
        includes_self = includes_self || uids[i] == own_uid(a);
    TSR__TRY(tsr__recovery_keep(params->recovery, params->lineage, generation, !includes_self, uids,
                                count));
    if (generation == params->generation + 1)
        a->decision = tsr__recovery_find(params->recovery, params->lineage, generation);
    return TSR_OK;
}

/* Stores the decision in another member's DECIDED. An invalid note is ignored. */
static tsr_status adopt_decided(agreement *a, const tsr__note *note)
{
    if (!note->is_valid)
        return TSR_OK;
    uint64_t *uids = tsr__calloc(note->count, sizeof *uids);
    if (!uids)
        return TSR_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < note->count; i++)
        uids[i] = tsr__wire_get_u64(note->uids + 8 * (size_t)i);
    const tsr_status status = adopt_decision(a, note->generation, uids, (int)note->count);
    tsr__free(uids);
    return status;
}

/* Records the error that only `joined` of the `not_ended` members that have not ended have joined,
 * which is no majority. */
static tsr_status fail_majority(const agreement *a, uint32_t joined, uint32_t not_ended)
{
    return tsr__fail(TSR_ERR_TIMEOUT,
                     "%u of the %u ranks that are not known to have ended took part within %.1f s; "
                     "it takes more than half of them, or half with the lowest",
                     (unsigned)joined, (unsigned)not_ended, (double)a->params->timeout_ns * 1e-9);
}

/* Incoming links: members that ask whether this one leads ---------------------------------------
 */

/* Answers a member that has sent JOIN: LEADING if this member leads, ELSEWHERE if it follows a
 * leader. Sends nothing as long as neither is the case. */
static tsr_status answer_join(agreement *a, tsr__incoming *from)
{
    if (from->member < 0 || from->has_joined || tsr__link_is_sending(&from->link))
        return TSR_OK;
    if (a->leading) {
        /* the member has connected before: close its earlier links */
        for (int i = 0; i < a->links.incoming_count; i++) {
            if (&a->links.incoming[i] != from && a->links.incoming[i].member == from->member)
                tsr__incoming_close(&a->links.incoming[i]);
        }
        from->has_joined = true;
        return tsr__note_send(&from->link, TSR__NOTE_LEADING, 0, 0);
    }
    if (a->following >= 0) {
        const tsr_status status = tsr__note_send(&from->link, TSR__NOTE_ELSEWHERE, 0, 0);
        tsr__incoming_close(from);
        return status;
    }
    return TSR_OK;
}

static tsr_status handle_join(agreement *a, tsr__incoming *from, const tsr__note *note)
{
    const tsr__agreement_params *params = a->params;
    if (!note->is_valid || note->lineage != params->lineage) {
        tsr__incoming_close(from); /* the other process may try again */
        return TSR_OK;
    }
    if (note->generation > params->generation)
        return tsr__note_send(&from->link, TSR__NOTE_BEHIND, params->generation, 0);
    if (note->generation < params->generation) {
        const tsr__decision *later =
            tsr__recovery_find(params->recovery, params->lineage, note->generation + 1);
        const tsr_status status = later ? tsr__note_send_decided(&from->link, later) : TSR_OK;
        tsr__incoming_close(from);
        return status;
    }
    /* read the note before the link is closed, which frees it */
    for (uint32_t i = 0; i < note->count; i++)
        mark_ended(a, find_member(a, tsr__wire_get_u64(note->uids + 8 * (size_t)i)));
    from->member = find_member(a, from->link.connector_uid);
    if (from->member < 0)
        tsr__incoming_close(from);
    return answer_join(a, from);
}

static tsr_status handle_incoming_note(agreement *a, tsr__incoming *from)
{
    const tsr__note note = tsr__note_read(&from->link);
    tsr_status status = TSR_OK;
    if (note.kind == TSR__NOTE_JOIN)
        status = handle_join(a, from, &note);
    else if (note.kind == TSR__NOTE_DECIDED) /* the decision that this member has asked for */
        status = adopt_decided(a, &note);
    if (from->link.state == TSR__LINK_OPEN)
        tsr__link_next(&from->link);
    return status;
}

/* Handles a LEFT_OUT: the other members have decided on a later generation without this process. */
static tsr_status handle_left_out(agreement *a, const tsr__left_out *left_out)
{
    const tsr__agreement_params *params = a->params;
    if (left_out->uid != own_uid(a) || left_out->lineage != params->lineage ||
        left_out->generation <= params->generation)
        return TSR_OK;
    TSR__TRY(tsr__recovery_keep(params->recovery, params->lineage, params->generation + 1, true,
                                NULL, 0));
    a->decision = tsr__recovery_find(params->recovery, params->lineage, params->generation + 1);
    return TSR_OK;
}

static tsr_status advance_incoming(agreement *a, tsr__incoming *from)
{
    tsr__left_out left_out;
    for (;;) {
        switch (tsr__link_advance(&from->link, &left_out)) {
        case TSR__LINK_NOTHING:
            return answer_join(a, from);
        case TSR__LINK_OPENED:
            break;
        case TSR__LINK_NOTE:
            TSR__TRY(handle_incoming_note(a, from));
            break;
        case TSR__LINK_LEFT_OUT:
            tsr__incoming_close(from);
            return handle_left_out(a, &left_out);
        case TSR__LINK_REFUSED:
        case TSR__LINK_LOST:
            tsr__incoming_close(from);
            return TSR_OK;
        case TSR__LINK_NO_MEMORY:
            return TSR_ERR_NO_MEMORY;
        }
    }
}

/* Outgoing links: looking for the leader, and watching members ----------------------------------
 */

/* Joins the leader `member`. If this process was leading, it stops, because `member` is lower; the
 * members that have joined this process then ask `member`, too. */
static tsr_status follow_leader(agreement *a, int member)
{
    if (a->following >= 0 && a->following != member)
        tsr__link_close(&a->links.outgoing[a->following].link);
    a->following = member;
    a->heard_ns = tsr__now_ns();
    if (!a->leading)
        return TSR_OK;
    a->leading = false;
    for (int i = 0; i < a->links.incoming_count; i++) {
        if (a->links.incoming[i].has_joined) {
            a->links.incoming[i].has_joined = false;
            TSR__TRY(answer_join(a, &a->links.incoming[i]));
        }
    }
    return TSR_OK;
}

/* Handles the decision of the leader: stores it and, if this process is a member of the new
 * generation, makes the rendezvous. */
static tsr_status enter_generation(agreement *a, int leader, const tsr__note *note)
{
    int rank = -1;
    TSR__TRY(adopt_decided(a, note));
    if (!a->decision || a->decision->without_me || a->following != leader)
        return TSR_OK;
    for (int i = 0; i < a->decision->count; i++) {
        if (a->decision->uids[i] == own_uid(a))
            rank = i;
    }
    /* The decision may be an old one from a member that does not lead. The connection to that
     * member cannot become the rendezvous. */
    if (rank <= 0 || a->decision->uids[0] != a->members[leader].card.uid)
        return TSR_OK;
    tsr__link *link = &a->links.outgoing[leader].link;
    TSR__TRY(
        tsr__rendezvous_adopt_client(rank, a->decision->count, &link->channel, &a->rendezvous));
    link->state = TSR__LINK_NONE; /* the rendezvous owns the connection */
    return TSR_OK;
}

static tsr_status handle_outgoing_note(agreement *a, int member)
{
    tsr__outgoing *to = &a->links.outgoing[member];
    const tsr__note note = tsr__note_read(&to->link);
    const tsr__decision *later = NULL;
    tsr_status status = TSR_OK;
    switch (note.is_valid ? note.kind : 0) {
    case TSR__NOTE_LEADING:
        status = follow_leader(a, member);
        break;
    case TSR__NOTE_ELSEWHERE:
        tsr__link_close(&to->link);
        to->retry_ns = tsr__now_ns() + RETRY_NS;
        to->asked_ns = 0;
        break;
    case TSR__NOTE_BEHIND:
        later = tsr__recovery_find(a->params->recovery, a->params->lineage, note.generation + 1);
        if (later && !tsr__link_is_sending(&to->link))
            status = tsr__note_send_decided(&to->link, later);
        break;
    case TSR__NOTE_DECIDED:
        status = enter_generation(a, member, &note);
        break;
    case TSR__NOTE_FAILED:
        status = fail_majority(a, note.joined, note.not_ended);
        break;
    default:
        break;
    }
    if (to->link.state == TSR__LINK_OPEN)
        tsr__link_next(&to->link);
    return status;
}

/* Handles the loss of the link to a member. */
static void handle_lost_link(agreement *a, int member, bool refused)
{
    a->links.outgoing[member].retry_ns = tsr__now_ns() + RETRY_NS;
    a->links.outgoing[member].attempts++;
    if (a->following == member)
        a->following = -1;
    /* A refused connection means that the member has ended, but only if the member has one address.
     * If it has several, another host may have the address at which the connection was refused,
     * because private addresses are used in many networks. */
    if (refused && a->members[member].card.address_count == 1)
        mark_ended(a, member);
}

static tsr_status advance_outgoing(agreement *a, int member)
{
    tsr__left_out left_out;
    tsr__link *link = &a->links.outgoing[member].link;
    for (;;) {
        switch (tsr__link_advance(link, &left_out)) {
        case TSR__LINK_NOTHING:
            if (link->state == TSR__LINK_CONNECTING && tsr__now_ns() - link->since_ns > CUT_OFF_NS)
                mark_cut_off(a, member);
            return TSR_OK;
        case TSR__LINK_OPENED:
            if (link->state == TSR__LINK_OPEN)
                TSR__TRY(tsr__note_send_join(link, a->params));
            break;
        case TSR__LINK_NOTE:
            TSR__TRY(handle_outgoing_note(a, member));
            break;
        case TSR__LINK_REFUSED:
            handle_lost_link(a, member, true);
            return TSR_OK;
        case TSR__LINK_LOST:
        /* LEFT_OUT is invalid here, because only the process that has started a link sends it:
         * treat the link as lost */
        case TSR__LINK_LEFT_OUT:
            if (link->is_unreachable)
                mark_cut_off(a, member);
            handle_lost_link(a, member, false);
            return TSR_OK;
        case TSR__LINK_NO_MEMORY:
            return TSR_ERR_NO_MEMORY;
        }
    }
}

/* Starts a link to a member, unless there is one or it is too early. If `asks` is true, asks the
 * member whether it leads. Otherwise the link only shows whether the member has ended. */
static void connect_to_member(agreement *a, int member, bool asks, uint64_t now)
{
    tsr__outgoing *to = &a->links.outgoing[member];
    if (to->link.state != TSR__LINK_NONE) {
        if (asks && !to->link.greets)
            tsr__link_greet(&to->link, own_uid(a));
        return;
    }
    if (now < to->retry_ns)
        return;
    tsr__link_connect(&to->link, &a->members[member].card, to->attempts, asks, own_uid(a),
                      a->params->key);
    if (to->link.state == TSR__LINK_NONE) {
        if (to->link.is_unreachable)
            mark_cut_off(a, member);
        handle_lost_link(a, member, false);
    }
}

/* Asks the members below this one until one of them leads. If none of them answers, this process
 * leads. */
static void seek_leader(agreement *a, uint64_t now)
{
    if (a->following >= 0) {
        if (now - a->heard_ns < SILENCE_NS)
            return;
        tsr__link_close(&a->links.outgoing[a->following].link);
        handle_lost_link(a, a->following, false);
    }
    for (int i = 0; i < a->self; i++) {
        if (a->members[i].ended)
            continue;
        if (a->links.outgoing[i].asked_ns == 0)
            a->links.outgoing[i].asked_ns = now;
        connect_to_member(a, i, true, now);
        if (now - a->links.outgoing[i].asked_ns < a->patience_ns && !a->members[i].ended)
            return;
    }
    if (a->leading)
        return;
    a->leading = true;
    a->leading_since_ns = now;
    a->heartbeat_ns = 0;
}

/* Leading -----------------------------------------------------------------------------------------
 */

/* Connects to the members that have not joined, to detect whether they have ended. */
static void watch_missing(agreement *a, uint64_t now)
{
    for (int i = a->self + 1; i < a->size; i++) {
        if (a->members[i].ended)
            continue;
        if (!tsr__member_links_has_joined(&a->links, i))
            connect_to_member(a, i, false, now);
        else if (a->links.outgoing[i].link.state != TSR__LINK_NONE)
            tsr__link_close(&a->links.outgoing[i].link);
    }
}

static tsr_status send_heartbeats(agreement *a, uint64_t now)
{
    if (now < a->heartbeat_ns)
        return TSR_OK;
    a->heartbeat_ns = now + HEARTBEAT_NS;
    for (int i = 0; i < a->links.incoming_count; i++) {
        if (a->links.incoming[i].has_joined && !tsr__link_is_sending(&a->links.incoming[i].link))
            TSR__TRY(tsr__note_send(&a->links.incoming[i].link, TSR__NOTE_LEADING, 0, 0));
    }
    return TSR_OK;
}

static tsr_status tell_failure(agreement *a, uint32_t joined, uint32_t not_ended)
{
    tsr__member_links_flush(&a->links);
    for (int i = 0; i < a->links.incoming_count; i++) {
        if (tsr__incoming_is_ready(&a->links.incoming[i]))
            TSR__TRY(
                tsr__note_send(&a->links.incoming[i].link, TSR__NOTE_FAILED, joined, not_ended));
    }
    tsr__member_links_flush(&a->links);
    return fail_majority(a, joined, not_ended);
}

/* Sends a LEFT_OUT to each member that is left out. This happens before any member continues.
 * Otherwise a member that is left out might conclude that all others have ended. */
static void tell_left_out(agreement *a)
{
    const tsr__agreement_params *params = a->params;
    for (int i = 0; i < a->size; i++) {
        if (i == a->self || a->members[i].ended || tsr__member_links_has_joined(&a->links, i))
            continue;
        tsr__link_leave_out(&a->links.outgoing[i].link,
                            &(tsr__left_out){.lineage = params->lineage,
                                             .generation = params->generation + 1,
                                             .uid = a->members[i].card.uid});
    }
}

static tsr_status tell_decision(agreement *a)
{
    tsr__member_links_flush(&a->links);
    for (int i = 0; i < a->links.incoming_count; i++) {
        if (tsr__incoming_is_ready(&a->links.incoming[i]))
            TSR__TRY(tsr__note_send_decided(&a->links.incoming[i].link, a->decision));
    }
    tsr__member_links_flush(&a->links);
    return tsr__member_links_make_rendezvous(&a->links, a->decision, &a->rendezvous);
}

static tsr_status decide_members(agreement *a)
{
    int count = 0;
    uint64_t *uids = tsr__calloc((size_t)a->size, sizeof *uids);
    if (!uids)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < a->size; i++) {
        if (i == a->self || tsr__member_links_has_joined(&a->links, i))
            uids[count++] = a->members[i].card.uid;
    }
    tell_left_out(a);
    tsr_status status = adopt_decision(a, a->params->generation + 1, uids, count);
    if (status == TSR_OK)
        status = tell_decision(a);
    tsr__free(uids);
    return status;
}

/* If the time to decide has come, decides and tells the members that have joined. */
static tsr_status lead_members(agreement *a, uint64_t now)
{
    uint32_t joined = 0, not_ended = 0;
    int lowest = -1;
    const tsr__agreement_params *params = a->params;
    watch_missing(a, now);
    TSR__TRY(send_heartbeats(a, now));
    for (int i = 0; i < a->size; i++) {
        if (i != a->self && a->members[i].ended && !tsr__member_links_has_joined(&a->links, i))
            continue;
        lowest = lowest < 0 ? i : lowest;
        not_ended++;
        joined += i == a->self || tsr__member_links_has_joined(&a->links, i);
    }
    /* With exactly half of the members, the lowest of them must take part; as the lowest member
     * that takes part leads, it must be this process. */
    const bool majority =
        params->force || 2 * joined > not_ended || (2 * joined == not_ended && lowest == a->self);
    const bool settled =
        now >= params->collect_until_ns && now - a->leading_since_ns >= a->settle_ns;
    if (majority && (joined == not_ended || settled))
        return decide_members(a);
    if (!majority && now + a->settle_ns >= params->deadline_ns)
        return tell_failure(a, joined, not_ended);
    return TSR_OK;
}

/* The loop ----------------------------------------------------------------------------------------
 */

static tsr_status advance_agreement(agreement *a)
{
    a->params->progress(a->params->user, a->members, a->size);
    for (int i = 0; i < a->size; i++) {
        a->members[i].ended = a->members[i].ended && !a->members[i].cut_off;
        if (a->members[i].ended)
            mark_ended(a, i);
    }
    tsr__member_links_accept(&a->links, a->params->recovery->listener, a->params->key);
    for (int i = 0; i < a->links.incoming_count && !a->decision; i++) {
        if (a->links.incoming[i].link.state != TSR__LINK_NONE)
            TSR__TRY(advance_incoming(a, &a->links.incoming[i]));
    }
    for (int i = 0; i < a->size && !a->decision; i++)
        TSR__TRY(advance_outgoing(a, i));
    if (a->decision)
        return TSR_OK;
    const uint64_t now = tsr__now_ns();
    seek_leader(a, now);
    if (a->leading && a->following < 0)
        TSR__TRY(lead_members(a, now));
    if (!a->decision && now >= a->params->deadline_ns)
        return tsr__fail(TSR_ERR_TIMEOUT, "the ranks have not agreed on who goes on within %.1f s",
                         (double)a->params->timeout_ns * 1e-9);
    return TSR_OK;
}

tsr_status tsr__agree(const tsr__agreement_params *params, const tsr__decision **decision,
                      tsr__rendezvous **rendezvous)
{
    agreement a = {.params = params,
                   .members = params->members,
                   .size = params->size,
                   .self = params->self,
                   .patience_ns = tsr__min_u64(PATIENCE_NS, params->timeout_ns / 8),
                   .settle_ns = tsr__min_u64(SETTLE_NS, params->timeout_ns / 8),
                   .following = -1};
    tsr_status status = tsr__member_links_init(&a.links, params->size);
    while (status == TSR_OK && !a.decision) {
        status = advance_agreement(&a);
        if (status == TSR_OK && !a.decision)
            tsr__member_links_poll(&a.links, params->recovery->listener);
    }
    tsr__member_links_finish(&a.links);
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
