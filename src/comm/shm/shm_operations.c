#include "comm/shm/shm.h"

#include "base/alloc.h"
#include "comm/shm/shm_state.h"

bool tsr__shm_is_busy(const tsr__shm *shm)
{
    return shm && shm->first;
}

const tsr__call *tsr__shm_call(const tsr__shm *shm)
{
    return shm->first->call;
}

void tsr__shm_call_of(const tsr__shm *shm, int rank, tsr__call *call, tsr__call *before)
{
    const unsigned index = tsr__shm_buffer_index(shm);
    *call = shm->slots[rank]->headers[index].call;
    *before = shm->slots[rank]->headers[index].before;
}

int tsr__shm_slot_index(const tsr__shm *shm)
{
    return shm->slot_index;
}

void tsr__shm_stop(tsr__shm *shm)
{
    if (!shm)
        return;
    shm->first = shm->last = NULL;
    atomic_store(&shm->slots[shm->rank]->headers[0].line.sequence, UINT64_MAX);
    atomic_store(&shm->slots[shm->rank]->headers[1].line.sequence, UINT64_MAX);
}

void tsr__shm_set_sleeping(tsr__shm *shm, bool sleeping)
{
    atomic_store(&shm->slots[shm->rank]->sleeping, sleeping);
}

/* Returns a hash of everything about the operation on which the ranks must agree. Ranks publish it
 * with their data, so that a different call is noticed. */
static uint64_t hash_of(const tsr__shm_operation *operation)
{
    return operation->call->sequence << 32 ^ tsr__call_history(operation->call) ^
           operation->step_number * UINT64_C(0x9e3779b97f4a7c15);
}

void tsr__shm_add(tsr__shm *shm, tsr__shm_operation *operation, const tsr__call *before)
{
    operation->next = NULL;
    operation->round = 0;
    operation->published = false;
    operation->call_hash = hash_of(operation);
    operation->before = before;
    if (shm->first)
        shm->last->next = operation;
    else
        shm->first = operation;
    shm->last = operation;
}

/* Rounds ------------------------------------------------------------------------------------------
 */

static bool has_published(const tsr__shm *shm, int rank)
{
    const tsr__shm_line *line = &shm->slots[rank]->headers[tsr__shm_buffer_index(shm)].line;
    return atomic_load_explicit(&line->sequence, memory_order_acquire) == shm->sequence;
}

/* Returns whether all other ranks have published the round. */
static bool is_last(const tsr__shm *shm)
{
    for (int i = 0; i < shm->size; i++)
        if (i != shm->rank && !has_published(shm, i))
            return false;
    return true;
}

/* Returns the ranks that sleep, as a bit mask, and clears their flags, so that each is woken only
 * once. */
static uint64_t take_sleepers(const tsr__shm *shm)
{
    uint64_t mask = 0;
    for (int i = 0; i < shm->size; i++) {
        _Atomic uint32_t *sleeping = &shm->slots[i]->sleeping;
        if (i != shm->rank && atomic_load_explicit(sleeping, memory_order_relaxed) &&
            atomic_exchange(sleeping, 0))
            mask |= UINT64_C(1) << i;
    }
    return mask;
}

static uint64_t publish(tsr__shm *shm, tsr__shm_operation *operation)
{
    const unsigned index = tsr__shm_buffer_index(shm);
    tsr__shm_slot *mine = shm->slots[shm->rank];
    tsr__shm_publish(shm, operation);
    mine->headers[index].call = *operation->call;
    mine->headers[index].before = *operation->before;
    mine->headers[index].line.call_hash = operation->call_hash;
    atomic_store_explicit(&mine->headers[index].line.sequence, shm->sequence, memory_order_release);
    operation->published = true;
    shm->waiting_for = 0;
    /* Only the last rank to publish a round wakes the others, because they cannot continue before.
     * All ranks execute this fence after they publish, so at least one of them then sees the
     * sequence numbers of all ranks. A rank that is about to sleep also executes a fence, after it
     * has set `sleeping` (progress/progress.c): either it sees all sequence numbers, or the last
     * rank to publish sees its flag. */
    atomic_thread_fence(memory_order_seq_cst);
    return is_last(shm) ? take_sleepers(shm) : 0;
}

/* Returns whether all ranks have published the round. */
static bool all_have_published(tsr__shm *shm, const tsr__shm_operation *operation,
                               tsr__shm_event *event)
{
    const unsigned index = tsr__shm_buffer_index(shm);
    for (; shm->waiting_for < shm->size; shm->waiting_for++) {
        const int rank = shm->waiting_for;
        if (rank == shm->rank)
            continue;
        if (!has_published(shm, rank))
            return false;
        if (shm->slots[rank]->headers[index].line.call_hash != operation->call_hash) {
            event->mismatch = rank;
            event->happened = true;
            return false;
        }
    }
    return true;
}

bool tsr__shm_advance(tsr__shm *shm, tsr__shm_event *event)
{
    bool moved = false;
    *event = (tsr__shm_event){.mismatch = -1};
    for (tsr__shm_operation *operation; (operation = shm->first) != NULL && !event->happened;) {
        if (!operation->published) {
            event->wake = publish(shm, operation);
            event->happened = event->wake != 0;
            moved = true;
            /* return, so that the caller wakes the other ranks before this rank consumes the round,
             * which may take long */
            if (event->happened)
                break;
        }
        if (!all_have_published(shm, operation, event))
            break;
        tsr__shm_consume(shm, operation);
        operation->published = false;
        shm->sequence++;
        moved = true;
        if (++operation->round == operation->rounds) {
            shm->first = operation->next;
            event->completed = operation;
            event->happened = true;
        }
    }
    return moved;
}

bool tsr__shm_awaits(const tsr__shm *shm, int rank)
{
    return shm->first && shm->first->published && !has_published(shm, rank);
}

/* Creation ----------------------------------------------------------------------------------------
 */

tsr_status tsr__shm_create(int max_size, tsr__shm **out)
{
    tsr__shm *shm = tsr__calloc(1, sizeof *shm);
    if (!shm)
        return TSR_ERR_NO_MEMORY;
    shm->slots = tsr__calloc((size_t)max_size, sizeof(tsr__shm_slot *));
    shm->inputs = shm->slots ? tsr__calloc((size_t)max_size, sizeof *shm->inputs) : NULL;
    if (!shm->inputs) {
        tsr__shm_destroy(&shm);
        return TSR_ERR_NO_MEMORY;
    }
    *out = shm;
    return TSR_OK;
}

void tsr__shm_destroy(tsr__shm **shm)
{
    if (!*shm)
        return;
    tsr__free((*shm)->slots);
    tsr__free((*shm)->inputs);
    tsr__free(*shm);
    *shm = NULL;
}
