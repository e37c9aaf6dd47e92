#include "comm/recovery/member_links.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

/* The largest number of links from processes that are not known to be members. */
#define MAX_UNIDENTIFIED 64
/* The longest time to send notes to the joined members. */
#define FLUSH_NS TSR__SECOND
/* The longest sleep. It is short, because the old communicator must be advanced again and again,
 * too. */
#define SLEEP_MS 5

tsr_status tsr__member_links_init(tsr__member_links *links, int size)
{
    *links = (tsr__member_links){.size = size, .incoming_count = size + MAX_UNIDENTIFIED};
    links->outgoing = tsr__calloc((size_t)size, sizeof *links->outgoing);
    links->incoming = tsr__calloc((size_t)links->incoming_count, sizeof *links->incoming);
    links->polls =
        tsr__calloc((size_t)size + (size_t)links->incoming_count + 1, sizeof *links->polls);
    if (!links->outgoing || !links->incoming || !links->polls)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < links->incoming_count; i++)
        links->incoming[i].member = -1;
    return TSR_OK;
}

void tsr__member_links_finish(tsr__member_links *links)
{
    for (int i = 0; i < links->size && links->outgoing; i++)
        tsr__link_close(&links->outgoing[i].link);
    for (int i = 0; i < links->incoming_count && links->incoming; i++)
        tsr__link_close(&links->incoming[i].link);
    tsr__free(links->outgoing);
    tsr__free(links->incoming);
    tsr__free(links->polls);
}

/* Returns an unused entry for a link from another process. If all are in use, drops the oldest link
 * whose process is not known to be a member. Returns NULL if there is none. */
static tsr__incoming *unused_incoming(tsr__member_links *links)
{
    tsr__incoming *oldest = NULL;
    for (int i = 0; i < links->incoming_count; i++) {
        tsr__incoming *candidate = &links->incoming[i];
        if (candidate->link.state == TSR__LINK_NONE)
            return candidate;
        if (candidate->member < 0 && (!oldest || candidate->link.since_ns < oldest->link.since_ns))
            oldest = candidate;
    }
    if (oldest)
        tsr__incoming_close(oldest);
    return oldest;
}

void tsr__member_links_accept(tsr__member_links *links, int listener, const uint8_t *key)
{
    for (int i = 0; i < MAX_UNIDENTIFIED && listener >= 0; i++) {
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            return; /* no connection waits to be accepted, or it has ended already */
        tsr__incoming *from = unused_incoming(links);
        const int flags = fcntl(fd, F_GETFL);
        if (!from || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
            fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
            close(fd);
            return;
        }
        tsr__link_accept(&from->link, fd, key);
        from->member = -1;
    }
}

void tsr__member_links_poll(tsr__member_links *links, int listener)
{
    nfds_t count = 0;
    links->polls[count++] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (int i = 0; i < links->size + links->incoming_count; i++) {
        const tsr__link *link =
            i < links->size ? &links->outgoing[i].link : &links->incoming[i - links->size].link;
        if (link->state != TSR__LINK_NONE)
            links->polls[count++] =
                (struct pollfd){.fd = link->channel.fd, .events = tsr__link_events(link)};
    }
    (void)poll(links->polls, count, SLEEP_MS);
}

void tsr__incoming_close(tsr__incoming *from)
{
    tsr__link_close(&from->link);
    from->member = -1;
    from->has_joined = false;
}

bool tsr__incoming_is_ready(const tsr__incoming *from)
{
    return from->has_joined && from->link.state == TSR__LINK_OPEN &&
           !tsr__link_is_sending(&from->link);
}

bool tsr__member_links_has_joined(const tsr__member_links *links, int member)
{
    for (int i = 0; i < links->incoming_count; i++) {
        if (links->incoming[i].has_joined && links->incoming[i].member == member)
            return true;
    }
    return false;
}

void tsr__member_links_flush(tsr__member_links *links)
{
    tsr__left_out ignored;
    const uint64_t until_ns = tsr__deadline_ns(FLUSH_NS);
    for (bool again = true; again && tsr__now_ns() < until_ns;) {
        again = false;
        for (int i = 0; i < links->incoming_count; i++) {
            tsr__link *link = &links->incoming[i].link;
            if (!links->incoming[i].has_joined || !tsr__link_is_sending(link))
                continue;
            (void)tsr__link_advance(link, &ignored);
            again = again || (link->state == TSR__LINK_OPEN && tsr__link_is_sending(link));
        }
        if (again)
            (void)poll(NULL, 0, 1);
    }
}

/* Returns the ready link of the joined process `uid`, or NULL. */
static const tsr__link *ready_link(const tsr__member_links *links, uint64_t uid)
{
    for (int i = 0; i < links->incoming_count; i++) {
        if (tsr__incoming_is_ready(&links->incoming[i]) &&
            links->incoming[i].link.connector_uid == uid)
            return &links->incoming[i].link;
    }
    return NULL;
}

tsr_status tsr__member_links_make_rendezvous(tsr__member_links *links,
                                             const tsr__decision *decision,
                                             tsr__rendezvous **rendezvous)
{
    tsr__channel *channels = tsr__calloc((size_t)decision->count, sizeof *channels);
    if (!channels)
        return TSR_ERR_NO_MEMORY;
    int connected = 1;
    for (int rank = 1; rank < decision->count; rank++) {
        const tsr__link *link = ready_link(links, decision->uids[rank]);
        if (link) {
            channels[rank] = link->channel;
            connected++;
        }
    }
    tsr_status status = TSR_OK;
    if (connected == decision->count && decision->count > 1)
        status = tsr__rendezvous_adopt_server(decision->count, channels, rendezvous);
    for (int i = 0; i < links->incoming_count && *rendezvous; i++) {
        if (links->incoming[i].has_joined)
            links->incoming[i].link.state = TSR__LINK_NONE; /* the rendezvous owns the connection */
    }
    tsr__free(channels);
    return status;
}

/* Notes -------------------------------------------------------------------------------------------
 */

enum {
    JOIN_HEAD = 20,    /* the bytes of a JOIN before its uids */
    DECIDED_HEAD = 12, /* those of a DECIDED */
    SHORT_BYTES = 12   /* the size of all other notes */
};

tsr__note tsr__note_read(const tsr__link *link)
{
    uint64_t size;
    const uint8_t *bytes = tsr__link_note(link, &size);
    tsr__note note = {.kind = size >= 4 ? tsr__wire_get_u32(bytes) : 0};
    uint64_t head = SHORT_BYTES;
    if (note.kind == TSR__NOTE_JOIN)
        head = JOIN_HEAD;
    if (size < head)
        return note;
    switch (note.kind) {
    case TSR__NOTE_JOIN:
        note.lineage = tsr__wire_get_u64(bytes + 4);
        note.generation = tsr__wire_get_u32(bytes + 12);
        note.count = tsr__wire_get_u32(bytes + 16);
        break;
    case TSR__NOTE_DECIDED:
        note.generation = tsr__wire_get_u32(bytes + 4);
        note.count = tsr__wire_get_u32(bytes + 8);
        break;
    case TSR__NOTE_BEHIND:
        note.generation = tsr__wire_get_u32(bytes + 4);
        break;
    case TSR__NOTE_FAILED:
        note.joined = tsr__wire_get_u32(bytes + 4);
        note.not_ended = tsr__wire_get_u32(bytes + 8);
        break;
    case TSR__NOTE_LEADING:
    case TSR__NOTE_ELSEWHERE:
        break;
    default:
        return note;
    }
    note.is_valid =
        note.count <= TSR__BOOTSTRAP_MAX_RANKS && size == head + 8 * (uint64_t)note.count;
    note.uids = bytes + head;
    return note;
}

static uint8_t *new_note(tsr__note_kind kind, size_t size)
{
    uint8_t *note = tsr__calloc(size, 1);
    if (note)
        tsr__wire_put_u32(note, (uint32_t)kind);
    return note;
}

tsr_status tsr__note_send(tsr__link *link, tsr__note_kind kind, uint32_t first, uint32_t second)
{
    uint8_t *note = new_note(kind, SHORT_BYTES);
    if (!note)
        return TSR_ERR_NO_MEMORY;
    tsr__wire_put_u32(note + 4, first);
    tsr__wire_put_u32(note + 8, second);
    tsr__link_send(link, note, SHORT_BYTES);
    return TSR_OK;
}

tsr_status tsr__note_send_join(tsr__link *link, const tsr__agreement_params *params)
{
    uint32_t count = 0;
    uint8_t *note = new_note(TSR__NOTE_JOIN, JOIN_HEAD + 8 * (size_t)params->size);
    if (!note)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < params->size; i++) {
        if (params->members[i].ended)
            tsr__wire_put_u64(note + JOIN_HEAD + 8 * (size_t)count++, params->members[i].card.uid);
    }
    tsr__wire_put_u64(note + 4, params->lineage);
    tsr__wire_put_u32(note + 12, params->generation);
    tsr__wire_put_u32(note + 16, count);
    tsr__link_send(link, note, JOIN_HEAD + 8 * (size_t)count);
    return TSR_OK;
}

tsr_status tsr__note_send_decided(tsr__link *link, const tsr__decision *decision)
{
    const size_t size = DECIDED_HEAD + 8 * (size_t)decision->count;
    uint8_t *note = new_note(TSR__NOTE_DECIDED, size);
    if (!note)
        return TSR_ERR_NO_MEMORY;
    tsr__wire_put_u32(note + 4, decision->generation);
    tsr__wire_put_u32(note + 8, (uint32_t)decision->count);
    for (int i = 0; i < decision->count; i++)
        tsr__wire_put_u64(note + DECIDED_HEAD + 8 * (size_t)i, decision->uids[i]);
    tsr__link_send(link, note, size);
    return TSR_OK;
}
