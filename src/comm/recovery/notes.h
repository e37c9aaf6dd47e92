/* The notes that the members of an agreement (agreement.h) send each other over links (link.h). */
#ifndef TSR_COMM_RECOVERY_NOTES_H
#define TSR_COMM_RECOVERY_NOTES_H

#include "comm/recovery/agreement.h"
#include "comm/recovery/link.h"

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
