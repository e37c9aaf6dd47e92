/* The members of an agreement: finds them, marks those that have ended, and stores decisions about
 * them. */
#include "comm/recovery/agree_state.h"

#include "base/alloc.h"
#include "base/error.h"

int tsr__agreement_member(const tsr__agreement *a, uint64_t uid)
{
    for (int i = 0; i < a->size; i++) {
        if (a->members[i].card.uid == uid)
            return i;
    }
    return -1;
}

void tsr__agreement_mark_ended(tsr__agreement *a, int member)
{
    if (member < 0 || member == a->self || a->members[member].cut_off)
        return;
    a->members[member].ended = true;
    tsr__link_close(&a->to[member]);
    if (a->following == member)
        a->following = -1;
}

bool tsr__agreement_has_joined(const tsr__agreement *a, int member)
{
    for (int i = 0; i < a->caller_count; i++) {
        if (a->callers[i].has_joined && a->callers[i].member == member)
            return true;
    }
    return false;
}

/* Stores a decision of this process or of another member in the recovery. */
tsr_status tsr__agreement_adopt(tsr__agreement *a, uint32_t generation, const uint64_t *uids,
                                int count)
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

tsr_status tsr__agreement_adopt_note(tsr__agreement *a, const uint8_t *note, uint64_t size)
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
    const tsr_status status =
        tsr__agreement_adopt(a, tsr__wire_get_u32(note + 4), uids, (int)count);
    tsr__free(uids);
    return status;
}

tsr_status tsr__agreement_fail_majority(const tsr__agreement *a, uint32_t joined, uint32_t there)
{
    return tsr__fail(TSR_ERR_TIMEOUT,
                     "%u of the %u ranks that are not known to have ended took part within %.1f s; "
                     "it takes more than half of them, or half with the lowest",
                     (unsigned)joined, (unsigned)there, (double)a->params->timeout_ns * 1e-9);
}
