#include "comm/recovery/notes.h"

#include "base/alloc.h"

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
