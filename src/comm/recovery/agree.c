#include "comm/recovery/agree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "comm/recovery/link.h"

#define MS UINT64_C(1000000)
/* How long a member that has been called may take to answer before the next one is called. */
#define PATIENCE_NS (150 * MS)
/* A kernel that can be reached accepts a connection within this time. */
#define CUT_OFF_NS (500 * MS)
/* How long to wait before calling a member again. */
#define RETRY_NS (30 * MS)
/* How often the leader says that it still leads, and after what silence it counts as lost. */
#define BEAT_NS (100 * MS)
#define SILENCE_NS (1000 * MS)
/* The shortest time from becoming the leader to deciding without some member. */
#define SETTLE_NS (400 * MS)
/* The time for telling the members about the decision. */
#define TELL_NS (1000 * MS)
/* The longest sleep, because the old communicator must progress too. */
#define SLEEP_MS 5
/* Connections that have not called yet. */
#define MAX_STRANGERS 64

/* What a note says. All numbers are little-endian. */
typedef enum note_kind {
    NOTE_JOIN = 1,  /* lineage 8, generation 4, count 4; the numbers 8 of members that have ended */
    NOTE_LEADING,   /* the sender leads, and the receiver has joined it */
    NOTE_ELSEWHERE, /* the sender does not lead: call again */
    NOTE_BEHIND,    /* generation 4: the sender does not know what made the generation after it */
    NOTE_DECIDED,   /* generation 4, count 4; the numbers 8 of its members */
    NOTE_FAILED     /* joined 4, needed from 4: there was no majority */
} note_kind;

typedef struct caller {
    tsr__link link;
    int member; /* −1: it has not sent JOIN */
    bool has_joined;
} caller;

typedef struct agreement {
    const tsr__agreement_params *params;
    tsr__member *members;
    int size, self;
    tsr__link *to;       /* [size]: the links that this process has started */
    uint64_t *retry_ns;  /* [size]: when to start the link again */
    uint64_t *called_ns; /* [size]: since when the member has not answered; 0: not called */
    unsigned *attempts;  /* [size] */
    caller *callers;     /* [caller_count]: the links that others have started */
    int caller_count;
    struct pollfd *polls;
    bool leading;
    uint64_t patience_ns,
        settle_ns; /* PATIENCE_NS and SETTLE_NS, or less if there is little time */
    uint64_t leading_since_ns, beat_ns;
    int following; /* the member that this one has joined; −1: none */
    uint64_t heard_ns;
    const tsr__decision *decision;
    tsr__rendezvous *rendezvous;
} agreement;

/* Notes ----------------------------------------------------------------------------------------
 */

static uint8_t *new_note(note_kind kind, size_t size)
{
    uint8_t *note = tsr__calloc(4 + size, 1);
    if (note)
        tsr__wire_put_u32(note, (uint32_t)kind);
    return note;
}

/* Sends a note of two numbers at most. */
static tsr_status send_short(tsr__link *link, note_kind kind, uint32_t first, uint32_t second)
{
    uint8_t *note = new_note(kind, 8);
    if (!note)
        return TSR_ERR_NO_MEMORY;
    tsr__wire_put_u32(note + 4, first);
    tsr__wire_put_u32(note + 8, second);
    tsr__link_send(link, note, 12);
    return TSR_OK;
}

static tsr_status send_join(const agreement *a, tsr__link *link)
{
    const tsr__agreement_params *params = a->params;
    uint32_t count = 0;
    uint8_t *note = new_note(NOTE_JOIN, 16 + 8 * (size_t)a->size);
    if (!note)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < a->size; i++) {
        if (a->members[i].ended)
            tsr__wire_put_u64(note + 20 + 8 * (size_t)count++, a->members[i].card.uid);
    }
    tsr__wire_put_u64(note + 4, params->lineage);
    tsr__wire_put_u32(note + 12, params->generation);
    tsr__wire_put_u32(note + 16, count);
    tsr__link_send(link, note, 20 + 8 * (size_t)count);
    return TSR_OK;
}

static tsr_status send_decided(tsr__link *link, const tsr__decision *decision)
{
    uint8_t *note = new_note(NOTE_DECIDED, 8 + 8 * (size_t)decision->count);
    if (!note)
        return TSR_ERR_NO_MEMORY;
    tsr__wire_put_u32(note + 4, decision->generation);
    tsr__wire_put_u32(note + 8, (uint32_t)decision->count);
    for (int i = 0; i < decision->count; i++)
        tsr__wire_put_u64(note + 12 + 8 * (size_t)i, decision->uids[i]);
    tsr__link_send(link, note, 12 + 8 * (size_t)decision->count);
    return TSR_OK;
}

/* Members --------------------------------------------------------------------------------------
 */

static int member_of(const agreement *a, uint64_t uid)
{
    for (int i = 0; i < a->size; i++) {
        if (a->members[i].card.uid == uid)
            return i;
    }
    return -1;
}

static void mark_ended(agreement *a, int member)
{
    if (member < 0 || member == a->self || a->members[member].cut_off)
        return;
    a->members[member].ended = true;
    tsr__link_close(&a->to[member]);
    if (a->following == member)
        a->following = -1;
}

static bool has_joined(const agreement *a, int member)
{
    for (int i = 0; i < a->caller_count; i++) {
        if (a->callers[i].has_joined && a->callers[i].member == member)
            return true;
    }
    return false;
}

/* Makes a decision, or what another member has said about one, this process's own. */
static tsr_status adopt(agreement *a, uint32_t generation, const uint64_t *uids, int count)
{
    const tsr__agreement_params *params = a->params;
    const uint64_t me = a->members[a->self].card.uid;
    bool is_in = false;
    for (int i = 0; i < count; i++)
        is_in = is_in || uids[i] == me;
    TSR__TRY(
        tsr__recovery_keep(params->recovery, params->lineage, generation, !is_in, uids, count));
    if (generation == params->generation + 1)
        a->decision = tsr__recovery_find(params->recovery, params->lineage, generation);
    return TSR_OK;
}

static tsr_status adopt_note(agreement *a, const uint8_t *note, uint64_t size)
{
    if (size < 12)
        return TSR_OK;
    const uint32_t count = tsr__wire_get_u32(note + 8);
    if (count > TSR__BOOTSTRAP_MAX_RANKS || size != 12 + 8 * (uint64_t)count)
        return TSR_OK;
    uint64_t *uids = tsr__calloc(count, sizeof *uids);
    if (!uids)
        return TSR_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        uids[i] = tsr__wire_get_u64(note + 12 + 8 * (size_t)i);
    const tsr_status status = adopt(a, tsr__wire_get_u32(note + 4), uids, (int)count);
    tsr__free(uids);
    return status;
}

/* Answering callers ----------------------------------------------------------------------------
 */

static void close_caller(caller *from)
{
    tsr__link_close(&from->link);
    from->member = -1;
    from->has_joined = false;
}

/* Tells a caller where this process stands, once it stands somewhere. */
static tsr_status place_caller(agreement *a, caller *from)
{
    if (from->member < 0 || from->has_joined || tsr__link_is_sending(&from->link))
        return TSR_OK;
    if (a->leading) {
        for (int i = 0; i < a->caller_count; i++) { /* it has called again */
            if (&a->callers[i] != from && a->callers[i].member == from->member)
                close_caller(&a->callers[i]);
        }
        from->has_joined = true;
        return send_short(&from->link, NOTE_LEADING, 0, 0);
    }
    if (a->following >= 0) {
        const tsr_status status = send_short(&from->link, NOTE_ELSEWHERE, 0, 0);
        close_caller(from);
        return status;
    }
    return TSR_OK;
}

static tsr_status handle_join(agreement *a, caller *from, const uint8_t *note, uint64_t size)
{
    const tsr__agreement_params *params = a->params;
    const uint32_t count = size >= 20 ? tsr__wire_get_u32(note + 16) : UINT32_MAX;
    if (count > TSR__BOOTSTRAP_MAX_RANKS || size != 20 + 8 * (uint64_t)count ||
        tsr__wire_get_u64(note + 4) != params->lineage) {
        close_caller(from); /* it calls again later */
        return TSR_OK;
    }
    const uint32_t generation = tsr__wire_get_u32(note + 12);
    if (generation > params->generation)
        return send_short(&from->link, NOTE_BEHIND, params->generation, 0);
    if (generation < params->generation) {
        const tsr__decision *later =
            tsr__recovery_find(params->recovery, params->lineage, generation + 1);
        const tsr_status status = later ? send_decided(&from->link, later) : TSR_OK;
        close_caller(from);
        return status;
    }
    from->member = member_of(a, from->link.caller_uid);
    if (from->member < 0)
        close_caller(from);
    for (uint32_t i = 0; i < count; i++)
        mark_ended(a, member_of(a, tsr__wire_get_u64(note + 20 + 8 * (size_t)i)));
    return place_caller(a, from);
}

static tsr_status handle_caller_note(agreement *a, caller *from)
{
    uint64_t size;
    const uint8_t *note = tsr__link_note(&from->link, &size);
    tsr_status status = TSR_OK;
    const uint32_t kind = size >= 4 ? tsr__wire_get_u32(note) : 0;
    if (kind == NOTE_JOIN)
        status = handle_join(a, from, note, size);
    else if (kind == NOTE_DECIDED) /* the answer to BEHIND */
        status = adopt_note(a, note, size);
    if (from->link.state == TSR__LINK_OPEN)
        tsr__link_next(&from->link);
    return status;
}

/* Handles a LEFT_OUT: somebody's statement that this process is not in a generation. */
static tsr_status handle_left_out(agreement *a, const tsr__left_out *said)
{
    const tsr__agreement_params *params = a->params;
    if (said->uid != a->members[a->self].card.uid || said->lineage != params->lineage ||
        said->generation <= params->generation)
        return TSR_OK;
    TSR__TRY(tsr__recovery_keep(params->recovery, params->lineage, params->generation + 1, true,
                                NULL, 0));
    a->decision = tsr__recovery_find(params->recovery, params->lineage, params->generation + 1);
    return TSR_OK;
}

static tsr_status advance_caller(agreement *a, caller *from)
{
    tsr__left_out said;
    for (;;) {
        switch (tsr__link_advance(&from->link, &said)) {
        case TSR__LINK_NOTHING:
            return place_caller(a, from);
        case TSR__LINK_OPENED:
            break;
        case TSR__LINK_NOTE:
            TSR__TRY(handle_caller_note(a, from));
            break;
        case TSR__LINK_LEFT_OUT:
            close_caller(from);
            return handle_left_out(a, &said);
        case TSR__LINK_REFUSED:
        case TSR__LINK_LOST:
            close_caller(from);
            return TSR_OK;
        case TSR__LINK_NO_MEMORY:
            return TSR_ERR_NO_MEMORY;
        }
    }
}

/* Returns a place for one more caller. If there is none, drops the oldest that has not called. */
static caller *free_caller(agreement *a)
{
    caller *oldest = NULL;
    for (int i = 0; i < a->caller_count; i++) {
        caller *one = &a->callers[i];
        if (one->link.state == TSR__LINK_NONE)
            return one;
        if (one->member < 0 && (!oldest || one->link.since_ns < oldest->link.since_ns))
            oldest = one;
    }
    if (oldest)
        close_caller(oldest);
    return oldest;
}

static tsr_status accept_callers(agreement *a)
{
    for (int i = 0; i < MAX_STRANGERS && a->params->recovery->listener >= 0; i++) {
        const int fd = accept(a->params->recovery->listener, NULL, NULL);
        if (fd < 0)
            return TSR_OK; /* none is waiting, or this one has gone */
        caller *place = free_caller(a);
        const int flags = fcntl(fd, F_GETFL);
        if (!place || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
            fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
            close(fd);
            return TSR_OK;
        }
        tsr__link_answer(&place->link, fd, a->params->key);
        place->member = -1;
        TSR__TRY(advance_caller(a, place));
    }
    return TSR_OK;
}

/* Calling others -------------------------------------------------------------------------------
 */

/* Stops to lead, because a lower member does. Those that have joined call that one. */
static tsr_status follow(agreement *a, int member)
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
            TSR__TRY(place_caller(a, &a->callers[i]));
        }
    }
    return TSR_OK;
}

static tsr_status fail_majority(const agreement *a, uint32_t joined, uint32_t there)
{
    return tsr__fail(TSR_ERR_TIMEOUT,
                     "%u of the %u ranks that are not known to have ended took part within %.1f s; "
                     "it takes more than half of them, or half with the lowest",
                     (unsigned)joined, (unsigned)there, (double)a->params->timeout_ns * 1e-9);
}

/* Becomes a member of the generation that the leader has decided on. */
static tsr_status enter(agreement *a, int leader, const uint8_t *note, uint64_t size)
{
    int rank = -1;
    TSR__TRY(adopt_note(a, note, size));
    if (!a->decision || a->decision->without_me || a->following != leader)
        return TSR_OK;
    for (int i = 0; i < a->decision->count; i++) {
        if (a->decision->uids[i] == a->members[a->self].card.uid)
            rank = i;
    }
    /* A decision from long ago comes from a member that does not lead. */
    if (rank <= 0 || a->decision->uids[0] != a->members[leader].card.uid)
        return TSR_OK;
    TSR__TRY(tsr__rendezvous_adopt_client(rank, a->decision->count, &a->to[leader].channel,
                                          &a->rendezvous));
    a->to[leader].state = TSR__LINK_NONE; /* the rendezvous owns the connection */
    return TSR_OK;
}

static tsr_status handle_answer(agreement *a, int member)
{
    uint64_t size;
    tsr__link *link = &a->to[member];
    const uint8_t *note = tsr__link_note(link, &size);
    const uint32_t kind = size >= 4 ? tsr__wire_get_u32(note) : 0;
    tsr_status status = TSR_OK;
    if (kind == NOTE_LEADING) {
        status = follow(a, member);
    } else if (kind == NOTE_ELSEWHERE) {
        tsr__link_close(link);
        a->retry_ns[member] = tsr__now_ns() + RETRY_NS;
        a->called_ns[member] = 0;
    } else if (kind == NOTE_BEHIND && size == 12) {
        const tsr__decision *later = tsr__recovery_find(a->params->recovery, a->params->lineage,
                                                        tsr__wire_get_u32(note + 4) + 1);
        if (later && !tsr__link_is_sending(link))
            status = send_decided(link, later);
    } else if (kind == NOTE_DECIDED) {
        status = enter(a, member, note, size);
    } else if (kind == NOTE_FAILED && size == 12) {
        status = fail_majority(a, tsr__wire_get_u32(note + 4), tsr__wire_get_u32(note + 8));
    }
    if (link->state == TSR__LINK_OPEN)
        tsr__link_next(link);
    return status;
}

/* With several addresses, another may work. */
static void note_cut_off(agreement *a, int member)
{
    if (a->members[member].card.address_count == 1 && a->members[member].card.port != 0)
        a->members[member].cut_off = true;
}

static void note_lost(agreement *a, int member, bool refused)
{
    a->retry_ns[member] = tsr__now_ns() + RETRY_NS;
    a->attempts[member]++;
    if (a->following == member)
        a->following = -1;
    /* With several addresses, the one that refuses may be another host's, which both hosts use
     * inside. */
    if (refused && a->members[member].card.address_count == 1)
        mark_ended(a, member);
}

static tsr_status advance_call(agreement *a, int member)
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
                TSR__TRY(send_join(a, link));
            break;
        case TSR__LINK_NOTE:
            TSR__TRY(handle_answer(a, member));
            break;
        case TSR__LINK_REFUSED:
            note_lost(a, member, true);
            return TSR_OK;
        case TSR__LINK_LOST:
        case TSR__LINK_LEFT_OUT: /* only callers send it */
            if (link->is_unreachable)
                note_cut_off(a, member);
            note_lost(a, member, false);
            return TSR_OK;
        case TSR__LINK_NO_MEMORY:
            return TSR_ERR_NO_MEMORY;
        }
    }
}

static void start_link(agreement *a, int member, bool calls, uint64_t now)
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

/* Calls the members below this one, until one of them leads. Leads if none of them answers. */
static void seek(agreement *a, uint64_t now)
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
        start_link(a, i, true, now);
        if (now - a->called_ns[i] < a->patience_ns && !a->members[i].ended)
            return;
    }
    if (a->leading)
        return;
    a->leading = true;
    a->leading_since_ns = now;
    a->beat_ns = 0;
}

/* Leading --------------------------------------------------------------------------------------
 */

/* Watches the members that have not joined, to learn if they have ended. */
static void watch_missing(agreement *a, uint64_t now)
{
    for (int i = a->self + 1; i < a->size; i++) {
        if (a->members[i].ended)
            continue;
        if (!has_joined(a, i))
            start_link(a, i, false, now);
        else if (a->to[i].state != TSR__LINK_NONE)
            tsr__link_close(&a->to[i]);
    }
}

static tsr_status beat(agreement *a, uint64_t now)
{
    if (now < a->beat_ns)
        return TSR_OK;
    a->beat_ns = now + BEAT_NS;
    for (int i = 0; i < a->caller_count; i++) {
        if (a->callers[i].has_joined && !tsr__link_is_sending(&a->callers[i].link))
            TSR__TRY(send_short(&a->callers[i].link, NOTE_LEADING, 0, 0));
    }
    return TSR_OK;
}

/* Waits until all notes to the callers have been sent, for a limited time. */
static void flush_callers(agreement *a)
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

static tsr_status tell_failure(agreement *a, uint32_t joined, uint32_t there)
{
    flush_callers(a);
    for (int i = 0; i < a->caller_count; i++) {
        if (a->callers[i].has_joined && a->callers[i].link.state == TSR__LINK_OPEN &&
            !tsr__link_is_sending(&a->callers[i].link))
            TSR__TRY(send_short(&a->callers[i].link, NOTE_FAILED, joined, there));
    }
    flush_callers(a);
    return fail_majority(a, joined, there);
}

/* Leaves a message for each member that is left out. It comes before anybody goes on, so that no
 * such member can come to believe that all others have ended. */
static void tell_left_out(agreement *a)
{
    const tsr__agreement_params *params = a->params;
    for (int i = 0; i < a->size; i++) {
        if (i == a->self || a->members[i].ended || has_joined(a, i))
            continue;
        tsr__link_leave_out(&a->to[i], &(tsr__left_out){.lineage = params->lineage,
                                                        .generation = params->generation + 1,
                                                        .uid = a->members[i].card.uid});
    }
}

/* Tells the members that have joined, and makes their connections a rendezvous. */
static tsr_status tell_decision(agreement *a)
{
    const tsr__decision *decision = a->decision;
    flush_callers(a);
    for (int i = 0; i < a->caller_count; i++) {
        caller *one = &a->callers[i];
        if (one->has_joined && one->link.state == TSR__LINK_OPEN &&
            !tsr__link_is_sending(&one->link))
            TSR__TRY(send_decided(&one->link, decision));
    }
    flush_callers(a);
    tsr__channel *channels = tsr__calloc((size_t)decision->count, sizeof *channels);
    if (!channels)
        return TSR_ERR_NO_MEMORY;
    int connected = 1;
    for (int rank = 1; rank < decision->count; rank++) {
        for (int i = 0; i < a->caller_count; i++) {
            const caller *one = &a->callers[i];
            if (one->has_joined && one->link.caller_uid == decision->uids[rank] &&
                one->link.state == TSR__LINK_OPEN && !tsr__link_is_sending(&one->link)) {
                channels[rank] = one->link.channel;
                connected++;
                break;
            }
        }
    }
    /* A member that has just been lost is found missing by the others too, and they agree again. */
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

static tsr_status decide(agreement *a)
{
    int count = 0;
    uint64_t *uids = tsr__calloc((size_t)a->size, sizeof *uids);
    if (!uids)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < a->size; i++) {
        if (i == a->self || has_joined(a, i))
            uids[count++] = a->members[i].card.uid;
    }
    tell_left_out(a);
    tsr_status status = adopt(a, a->params->generation + 1, uids, count);
    if (status == TSR_OK)
        status = tell_decision(a);
    tsr__free(uids);
    return status;
}

static tsr_status lead(agreement *a, uint64_t now)
{
    uint32_t joined = 0, there = 0;
    int lowest = -1;
    const tsr__agreement_params *params = a->params;
    watch_missing(a, now);
    TSR__TRY(beat(a, now));
    for (int i = 0; i < a->size; i++) {
        if (i != a->self && a->members[i].ended && !has_joined(a, i))
            continue;
        lowest = lowest < 0 ? i : lowest;
        there++;
        joined += i == a->self || has_joined(a, i);
    }
    /* The lowest of those that take part is the leader. */
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

/* The loop -------------------------------------------------------------------------------------
 */

static void sleep_until_event(agreement *a)
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

static tsr_status step(agreement *a)
{
    a->params->progress(a->params->user, a->members, a->size);
    for (int i = 0; i < a->size; i++) {
        a->members[i].ended = a->members[i].ended && !a->members[i].cut_off;
        if (a->members[i].ended)
            mark_ended(a, i);
    }
    TSR__TRY(accept_callers(a));
    for (int i = 0; i < a->caller_count && !a->decision; i++) {
        if (a->callers[i].link.state != TSR__LINK_NONE)
            TSR__TRY(advance_caller(a, &a->callers[i]));
    }
    for (int i = 0; i < a->size && !a->decision; i++)
        TSR__TRY(advance_call(a, i));
    if (a->decision)
        return TSR_OK;
    const uint64_t now = tsr__now_ns();
    seek(a, now);
    if (a->leading && a->following < 0)
        TSR__TRY(lead(a, now));
    if (!a->decision && now >= a->params->deadline_ns)
        return tsr__fail(TSR_ERR_TIMEOUT, "the ranks have not agreed on who goes on within %.1f s",
                         (double)a->params->timeout_ns * 1e-9);
    return TSR_OK;
}

static tsr_status allocate(agreement *a)
{
    const size_t size = (size_t)a->size;
    a->caller_count = a->size + MAX_STRANGERS;
    a->to = tsr__calloc(size, sizeof *a->to);
    a->retry_ns = tsr__calloc(size, sizeof *a->retry_ns);
    a->called_ns = tsr__calloc(size, sizeof *a->called_ns);
    a->attempts = tsr__calloc(size, sizeof *a->attempts);
    a->callers = tsr__calloc((size_t)a->caller_count, sizeof *a->callers);
    a->polls = tsr__calloc(2 * size + MAX_STRANGERS + 1, sizeof *a->polls);
    if (!a->to || !a->retry_ns || !a->called_ns || !a->attempts || !a->callers || !a->polls)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < a->caller_count; i++)
        a->callers[i].member = -1;
    return TSR_OK;
}

static void finish(agreement *a)
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
    agreement a = {.params = params,
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
