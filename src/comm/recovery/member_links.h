/* The links between this process and the members of an agreement (agreement.h): those that this
 * process has started, and those that other processes have started; and the notes that members send
 * each other over them. agreement.c decides what to send and what a note causes. */
#ifndef TSR_COMM_RECOVERY_MEMBER_LINKS_H
#define TSR_COMM_RECOVERY_MEMBER_LINKS_H

#include "comm/recovery/agreement.h"
#include "comm/recovery/recovery_link.h"

struct pollfd;

/* A link that another process has started. */
typedef struct tsr__incoming {
    tsr__link link;
    int member; /* −1: it is not known which member the process is */
    bool has_joined;
} tsr__incoming;

/* The link to a member that this process has started. */
typedef struct tsr__outgoing {
    tsr__link link;
    uint64_t retry_ns; /* when this process may connect to the member again */
    /* when the member was first asked without an answer; 0: it has not been asked */
    uint64_t asked_ns;
    unsigned attempts; /* the number of connections that have failed */
} tsr__outgoing;

typedef struct tsr__member_links {
    int size;                /* the number of members */
    tsr__outgoing *outgoing; /* [size] */
    tsr__incoming *incoming; /* [incoming_count] */
    int incoming_count;
    struct pollfd *polls;
} tsr__member_links;

tsr_status tsr__member_links_init(tsr__member_links *links, int size) TSR_NODISCARD;
/* Closes all links and frees the memory, also after tsr__member_links_init has failed. */
void tsr__member_links_finish(tsr__member_links *links);

/* Accepts all connections that wait at the listener (−1: there is none). If there are too many
 * links from processes that are not known to be members, the oldest of these is dropped. */
void tsr__member_links_accept(tsr__member_links *links, int listener, const uint8_t *key);
/* Sleeps until a link or the listener has an event, but at most for a few milliseconds. */
void tsr__member_links_poll(tsr__member_links *links, int listener);

void tsr__incoming_close(tsr__incoming *from);
/* Returns whether the member has joined this process and its link can take a note. */
bool tsr__incoming_is_ready(const tsr__incoming *from);
bool tsr__member_links_has_joined(const tsr__member_links *links, int member);
/* Blocks, at most for a second, until all notes to the joined members have been sent. */
void tsr__member_links_flush(tsr__member_links *links);

/* Makes the connections of the joined members a rendezvous of the members of the decision, of which
 * this process is rank 0. Does nothing if not all of them are connected: if a connection has just
 * been lost, the other members notice the loss, too, and all agree again. */
tsr_status tsr__member_links_make_rendezvous(tsr__member_links *links,
                                             const tsr__decision *decision,
                                             tsr__rendezvous **rendezvous) TSR_NODISCARD;

/* Notes -------------------------------------------------------------------------------------------
 */

/* The kinds of notes, each with its fields after the kind, which has 4 bytes. The number after the
 * name of a field is its size in bytes. Integers are little-endian. */
typedef enum tsr__note_kind {
    TSR__NOTE_JOIN = 1, /* lineage 8, generation 4, count 4; uid 8 of each ended member */
    TSR__NOTE_LEADING,  /* the sender leads, and the receiver has joined it */
    /* the sender does not lead, so the receiver must look for the leader again */
    TSR__NOTE_ELSEWHERE,
    /* generation 4: the sender's. It asks for the decision that made the next one */
    TSR__NOTE_BEHIND,
    TSR__NOTE_DECIDED, /* generation 4, count 4; uid 8 of each of its members */
    TSR__NOTE_FAILED   /* joined 4, not ended 4 (numbers of members): no majority */
} tsr__note_kind;

/* A received note. Fields that its kind does not have are 0. */
typedef struct tsr__note {
    uint32_t kind;
    bool is_valid; /* the kind is known, and the size fits the kind and the count */
    uint64_t lineage;
    uint32_t generation;
    uint32_t joined, not_ended;
    uint32_t count;
    const uint8_t *uids; /* count · 8 bytes; read them with tsr__wire_get_u64 */
} tsr__note;

/* Decodes the note that has arrived on a link. It is valid until tsr__link_next. */
tsr__note tsr__note_read(const tsr__link *link);

/* These functions send one note: one whose fields are at most two numbers of 4 bytes, a JOIN that
 * lists the members that have ended, or a DECIDED. Error: TSR_ERR_NO_MEMORY. */
tsr_status tsr__note_send(tsr__link *link, tsr__note_kind kind, uint32_t first,
                          uint32_t second) TSR_NODISCARD;
tsr_status tsr__note_send_join(tsr__link *link, const tsr__agreement_params *params) TSR_NODISCARD;
tsr_status tsr__note_send_decided(tsr__link *link, const tsr__decision *decision) TSR_NODISCARD;

#endif
