/* Answers the members of an agreement that call this member. */
#include "comm/recovery/agree_state.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

static void close_caller(tsr__caller *from)
{
    tsr__link_close(&from->link);
    from->member = -1;
    from->has_joined = false;
}

/* Answers a member that has called to join: LEADING if this member leads, ELSEWHERE if it follows a
 * leader. Sends nothing as long as neither is the case. */
tsr_status tsr__agreement_place(tsr__agreement *a, tsr__caller *from)
{
    if (from->member < 0 || from->has_joined || tsr__link_is_sending(&from->link))
        return TSR_OK;
    if (a->leading) {
        /* the member has called before: close its earlier links */
        for (int i = 0; i < a->caller_count; i++) {
            if (&a->callers[i] != from && a->callers[i].member == from->member)
                close_caller(&a->callers[i]);
        }
        from->has_joined = true;
        return tsr__agreement_send_short(&from->link, TSR__NOTE_LEADING, 0, 0);
    }
    if (a->following >= 0) {
        const tsr_status status = tsr__agreement_send_short(&from->link, TSR__NOTE_ELSEWHERE, 0, 0);
        close_caller(from);
        return status;
    }
    return TSR_OK;
}

static tsr_status handle_join(tsr__agreement *a, tsr__caller *from, const uint8_t *note,
                              uint64_t size)
{
    const tsr__agreement_params *params = a->params;
    const uint32_t count = size >= 20 ? tsr__wire_get_u32(note + 16) : UINT32_MAX;
    if (count > TSR__BOOTSTRAP_MAX_RANKS || size != 20 + 8 * (uint64_t)count ||
        tsr__wire_get_u64(note + 4) != params->lineage) {
        /* the note is damaged or of another lineage; the caller may try again */
        close_caller(from);
        return TSR_OK;
    }
    const uint32_t generation = tsr__wire_get_u32(note + 12);
    if (generation > params->generation)
        return tsr__agreement_send_short(&from->link, TSR__NOTE_BEHIND, params->generation, 0);
    if (generation < params->generation) {
        const tsr__decision *later =
            tsr__recovery_find(params->recovery, params->lineage, generation + 1);
        const tsr_status status = later ? tsr__agreement_send_decided(&from->link, later) : TSR_OK;
        close_caller(from);
        return status;
    }
    from->member = tsr__agreement_member(a, from->link.caller_uid);
    if (from->member < 0)
        close_caller(from);
    for (uint32_t i = 0; i < count; i++)
        tsr__agreement_mark_ended(
            a, tsr__agreement_member(a, tsr__wire_get_u64(note + 20 + 8 * (size_t)i)));
    return tsr__agreement_place(a, from);
}

static tsr_status handle_caller_note(tsr__agreement *a, tsr__caller *from)
{
    uint64_t size;
    const uint8_t *note = tsr__link_note(&from->link, &size);
    tsr_status status = TSR_OK;
    const uint32_t kind = size >= 4 ? tsr__wire_get_u32(note) : 0;
    if (kind == TSR__NOTE_JOIN)
        status = handle_join(a, from, note, size);
    else if (kind == TSR__NOTE_DECIDED) /* the decision that this member has asked for by BEHIND */
        status = tsr__agreement_adopt_note(a, note, size);
    if (from->link.state == TSR__LINK_OPEN)
        tsr__link_next(&from->link);
    return status;
}

/* Handles a LEFT_OUT: the other members have decided on a later generation without this process. */
static tsr_status handle_left_out(tsr__agreement *a, const tsr__left_out *said)
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

tsr_status tsr__agreement_advance_caller(tsr__agreement *a, tsr__caller *from)
{
    tsr__left_out said;
    for (;;) {
        switch (tsr__link_advance(&from->link, &said)) {
        case TSR__LINK_NOTHING:
            return tsr__agreement_place(a, from);
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

/* Returns an entry of a->callers for a new caller. If all are in use, drops the oldest caller that
 * has not sent JOIN. */
static tsr__caller *free_caller(tsr__agreement *a)
{
    tsr__caller *oldest = NULL;
    for (int i = 0; i < a->caller_count; i++) {
        tsr__caller *one = &a->callers[i];
        if (one->link.state == TSR__LINK_NONE)
            return one;
        if (one->member < 0 && (!oldest || one->link.since_ns < oldest->link.since_ns))
            oldest = one;
    }
    if (oldest)
        close_caller(oldest);
    return oldest;
}

tsr_status tsr__agreement_accept(tsr__agreement *a)
{
    for (int i = 0; i < TSR__AGREEMENT_MAX_STRANGERS && a->params->recovery->listener >= 0; i++) {
        const int fd = accept(a->params->recovery->listener, NULL, NULL);
        if (fd < 0)
            return TSR_OK; /* no connection waits to be accepted, or it has ended already */
        tsr__caller *place = free_caller(a);
        const int flags = fcntl(fd, F_GETFL);
        if (!place || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
            fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
            close(fd);
            return TSR_OK;
        }
        tsr__link_answer(&place->link, fd, a->params->key);
        place->member = -1;
        TSR__TRY(tsr__agreement_advance_caller(a, place));
    }
    return TSR_OK;
}
