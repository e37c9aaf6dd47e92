/* One connection between two processes of a job that recover from a failure. No function blocks.
 *
 * The process that connects and the process that accepts prove to each other that they know the
 * job's key (bootstrap/wire_protocol.h). Then both may send notes, short messages that
 * member_links.h defines. A process may also connect without a handshake, only to watch whether the
 * other process has ended. */
#ifndef TSR_COMM_RECOVERY_RECOVERY_LINK_H
#define TSR_COMM_RECOVERY_RECOVERY_LINK_H

#include "comm/bootstrap/channel.h"
#include "comm/recovery/recovery.h"

typedef enum tsr__link_state {
    TSR__LINK_NONE, /* not connected; the value is 0 */
    TSR__LINK_CONNECTING,
    TSR__LINK_WATCHING, /* connected without a handshake, to watch the other process */
    TSR__LINK_GREETING, /* the handshake is in progress */
    TSR__LINK_OPEN
} tsr__link_state;

typedef enum tsr__link_event {
    TSR__LINK_NOTHING,
    TSR__LINK_OPENED,   /* the handshake is complete */
    TSR__LINK_NOTE,     /* a note has arrived: see tsr__link_note */
    TSR__LINK_LEFT_OUT, /* a LEFT_OUT with a valid MAC has arrived; the link is closed */
    TSR__LINK_REFUSED,  /* nothing listens at the address; the link is closed */
    TSR__LINK_LOST,     /* the connection has ended for another reason; the link is closed */
    TSR__LINK_NO_MEMORY
} tsr__link_event;

typedef struct tsr__link {
    tsr__link_state state;
    bool is_outgoing;    /* this process has started the link */
    bool greets;         /* send HELLO once the link is connected */
    bool is_refused;     /* connect() has failed already, because nothing listens */
    bool is_unreachable; /* connect() failed because the network does not lead to the other host */
    uint64_t since_ns;   /* when the link was started */
    uint64_t connector_uid; /* the uid of the process that has started the link */
    const uint8_t *key;
    tsr__channel channel;
    tsr__wire_handshake handshake;
    uint8_t *note; /* the note that is being sent, owned by the link */
} tsr__link;

/* What a process says in LEFT_OUT: generation `generation` of `lineage` is without the process
 * `uid`. */
typedef struct tsr__left_out {
    uint64_t lineage;
    uint32_t generation;
    uint64_t uid;
} tsr__left_out;

/* Starts to connect to the process that has the card `to`. Successive values of `attempt` try the
 * addresses of the card round-robin. If `greets` is false, only watches the process. `key` must
 * stay valid. */
void tsr__link_connect(tsr__link *link, const tsr__card *to, unsigned attempt, bool greets,
                       uint64_t own_uid, const uint8_t *key);
/* Makes a link from an accepted connection, and waits for the other process's HELLO. The link owns
 * the socket. */
void tsr__link_accept(tsr__link *link, int fd, const uint8_t *key);
/* Starts the handshake on a link that has only watched the other process. */
void tsr__link_greet(tsr__link *link, uint64_t own_uid);
void tsr__link_close(tsr__link *link);

/* Returns the events of poll() after which tsr__link_advance must be called. */
short tsr__link_events(const tsr__link *link);
/* Advances the link until the first event, and returns it. Call this again until it returns
 * TSR__LINK_NOTHING. */
tsr__link_event tsr__link_advance(tsr__link *link, tsr__left_out *left_out);

/* Returns the note that has arrived. It is valid until tsr__link_next. */
const uint8_t *tsr__link_note(const tsr__link *link, uint64_t *size);
/* Discards the note that has arrived, and prepares for the next one. */
void tsr__link_next(tsr__link *link);
/* Sends a note through an open link. Takes ownership of `note`, which was allocated by
 * tsr__calloc. The previous note must
 * have been sent: see tsr__link_is_sending. */
void tsr__link_send(tsr__link *link, uint8_t *note, size_t size);
static inline bool tsr__link_is_sending(const tsr__link *link)
{
    return link->channel.sending;
}

/* Sends a LEFT_OUT through a connected link and closes the link. The other process may be stopped:
 * it finds the message when it continues, even if this process has ended. */
void tsr__link_leave_out(tsr__link *link, const tsr__left_out *left_out);

#endif
