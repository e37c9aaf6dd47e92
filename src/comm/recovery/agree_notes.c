/* Sends the notes of an agreement to other members. */
#include "comm/recovery/agree_state.h"

#include "base/alloc.h"

static uint8_t *new_note(tsr__note_kind kind, size_t size)
{
    uint8_t *note = tsr__calloc(4 + size, 1);
    if (note)
        tsr__wire_put_u32(note, (uint32_t)kind);
    return note;
}

/* Sends a note whose fields are at most two 4-byte numbers. */
tsr_status tsr__agreement_send_short(tsr__link *link, tsr__note_kind kind, uint32_t first,
                                     uint32_t second)
{
    uint8_t *note = new_note(kind, 8);
    if (!note)
        return TSR_ERR_NO_MEMORY;
    tsr__wire_put_u32(note + 4, first);
    tsr__wire_put_u32(note + 8, second);
    tsr__link_send(link, note, 12);
    return TSR_OK;
}

tsr_status tsr__agreement_send_join(const tsr__agreement *a, tsr__link *link)
{
    const tsr__agreement_params *params = a->params;
    uint32_t count = 0;
    uint8_t *note = new_note(TSR__NOTE_JOIN, 16 + 8 * (size_t)a->size);
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

tsr_status tsr__agreement_send_decided(tsr__link *link, const tsr__decision *decision)
{
    uint8_t *note = new_note(TSR__NOTE_DECIDED, 8 + 8 * (size_t)decision->count);
    if (!note)
        return TSR_ERR_NO_MEMORY;
    tsr__wire_put_u32(note + 4, decision->generation);
    tsr__wire_put_u32(note + 8, (uint32_t)decision->count);
    for (int i = 0; i < decision->count; i++)
        tsr__wire_put_u64(note + 12 + 8 * (size_t)i, decision->uids[i]);
    tsr__link_send(link, note, 12 + 8 * (size_t)decision->count);
    return TSR_OK;
}
