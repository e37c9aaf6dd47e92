/* The state of an agreement (agree.h), and the functions that the agree_*.c files share. */
#ifndef TSR_COMM_RECOVERY_AGREE_STATE_H
#define TSR_COMM_RECOVERY_AGREE_STATE_H

#include "comm/recovery/agree.h"
#include "comm/recovery/link.h"

struct pollfd;

/* The largest number of connections from processes that have not sent JOIN yet, so that it is not
 * known whether they are members. */
#define TSR__AGREEMENT_MAX_STRANGERS 64
/* How long to wait before calling a member again. */
#define TSR__AGREEMENT_RETRY_NS UINT64_C(30000000)

/* The kinds of notes, each with its fields. The number after the name of a field is its size in
 * bytes. Integers are little-endian. */
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

typedef struct tsr__caller {
    tsr__link link;
    int member; /* −1: the caller has not sent JOIN */
    bool has_joined;
} tsr__caller;

typedef struct tsr__agreement {
    const tsr__agreement_params *params;
    tsr__member *members;
    int size, self;
    tsr__link *to;      /* [size]: the links that this process has started */
    uint64_t *retry_ns; /* [size]: when this process may connect to the member again */
    /* [size]: when the member was first called without an answer; 0: it has not been called */
    uint64_t *called_ns;
    unsigned *attempts;   /* [size] */
    tsr__caller *callers; /* [caller_count]: the links that others have started */
    int caller_count;
    struct pollfd *polls;
    bool leading;
    /* how long a member that has been called may take to answer before the next one is called */
    uint64_t patience_ns;
    /* how long this member must have led before it may decide although not all members have joined
     */
    uint64_t settle_ns;
    uint64_t leading_since_ns, beat_ns;
    int following; /* the member that this one has joined; −1: none */
    uint64_t heard_ns;
    const tsr__decision *decision;
    tsr__rendezvous *rendezvous;
} tsr__agreement;

/* Notes (agree_notes.c) ---------------------------------------------------------------------- */

/* These functions send one note: one whose fields are at most two numbers, a JOIN, or a DECIDED.
 * Error: TSR_ERR_NO_MEMORY. */
tsr_status tsr__agreement_send_short(tsr__link *link, tsr__note_kind kind, uint32_t first,
                                     uint32_t second) TSR_NODISCARD;
tsr_status tsr__agreement_send_join(const tsr__agreement *a, tsr__link *link) TSR_NODISCARD;
tsr_status tsr__agreement_send_decided(tsr__link *link,
                                       const tsr__decision *decision) TSR_NODISCARD;

/* Members (agree_members.c) ------------------------------------------------------------------ */

/* Returns the index of the member with this uid, or -1 if there is none. */
int tsr__agreement_member(const tsr__agreement *a, uint64_t uid);

/* Marks member number `member` as ended. Does nothing if `member` is −1 or this process, or if the
 * member is cut off. */
void tsr__agreement_mark_ended(tsr__agreement *a, int member);

bool tsr__agreement_has_joined(const tsr__agreement *a, int member);

/* The first function stores a decision of this process, the second the decision in another member's
 * DECIDED; an invalid note is ignored. If the decision makes the next generation, it is the result
 * of the agreement. Error: TSR_ERR_NO_MEMORY. */
tsr_status tsr__agreement_adopt(tsr__agreement *a, uint32_t generation, const uint64_t *uids,
                                int count) TSR_NODISCARD;
tsr_status tsr__agreement_adopt_note(tsr__agreement *a, const uint8_t *note,
                                     uint64_t size) TSR_NODISCARD;

/* Records the error that only `joined` of the `there` members that have not ended have joined,
 * which is no majority. Returns TSR_ERR_TIMEOUT. */
tsr_status tsr__agreement_fail_majority(const tsr__agreement *a, uint32_t joined,
                                        uint32_t there) TSR_NODISCARD;

/* Answering callers (agree_callers.c) -------------------------------------------------------- */

/* Accepts all connections that wait at the listener. */
tsr_status tsr__agreement_accept(tsr__agreement *a) TSR_NODISCARD;

/* Handles the notes that a caller has sent. */
tsr_status tsr__agreement_advance_caller(tsr__agreement *a, tsr__caller *from) TSR_NODISCARD;

/* Answers a member that has called to join: LEADING if this member leads, ELSEWHERE if it follows a
 * leader. Sends nothing as long as neither is the case. */
tsr_status tsr__agreement_place(tsr__agreement *a, tsr__caller *from) TSR_NODISCARD;

/* Calling others (agree_calls.c) ------------------------------------------------------------- */

/* Calls the members below this one until one of them leads. If none of them answers, this process
 * leads. */
void tsr__agreement_seek(tsr__agreement *a, uint64_t now);

/* Starts a link to a member, unless there is one or it is too early. If `calls` is true, asks the
 * member whether it leads. Otherwise the link only shows whether the member has ended. */
void tsr__agreement_link(tsr__agreement *a, int member, bool calls, uint64_t now);

/* Handles the events of the link to a member that this process has called or watches. */
tsr_status tsr__agreement_advance_call(tsr__agreement *a, int member) TSR_NODISCARD;

/* Leading (agree_leader.c) ------------------------------------------------------------------- */

/* If the time to decide has come, decides and tells the members that have joined. */
tsr_status tsr__agreement_lead(tsr__agreement *a, uint64_t now) TSR_NODISCARD;

#endif
