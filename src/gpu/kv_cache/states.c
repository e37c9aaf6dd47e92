/* Slots of states, with reference counts. A slot that is read in a step is written in it only by
 * the sequence that reads it, and only if nothing else uses it. */
#include "gpu/kv_cache/states.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "gpu/internal.h"

/* Creating ----------------------------------------------------------------------------------- */

static tsr_status check(const tsr_kv_cache_params *p)
{
    TSR__REQUIRE(
        p->kept_tokens >= 0 && p->kept_tokens <= TSR_MAX_KEPT_TOKENS && p->kept_sequences >= 0,
        "kv_cache_create: kept_tokens is %d, kept_sequences %d; 0 to %d, and 0 or more, are "
        "possible",
        p->kept_tokens, p->kept_sequences, TSR_MAX_KEPT_TOKENS);
    TSR__REQUIRE(p->snapshots >= 0 && p->snapshot_tokens >= 0 &&
                     p->snapshot_tokens % p->page_tokens == 0,
                 "kv_cache_create: %d snapshots, each after %lld tokens; 0 or more, and a multiple "
                 "of the %lld tokens of a page, are possible",
                 p->snapshots, (long long)p->snapshot_tokens, (long long)p->page_tokens);
    TSR__REQUIRE(p->snapshots > 0 || p->snapshot_tokens == 0,
                 "kv_cache_create: snapshots is 0, but snapshot_tokens is %lld",
                 (long long)p->snapshot_tokens);
    TSR__REQUIRE(tsr__kv_cache_slots(p) <= INT32_MAX / 2,
                 "kv_cache_create: %lld states are too many; at most %d are possible",
                 (long long)tsr__kv_cache_slots(p), INT32_MAX / 2);
    return TSR_OK;
}

static size_t backup_bytes(const tsr__states *s)
{
    return 2 * (size_t)s->slots * sizeof *s->references + (size_t)s->sequences * sizeof *s->of;
}

tsr_status tsr__states_init(tsr__states *s, const tsr_kv_cache_params *p)
{
    *s = (tsr__states){.on = p->layer_conv_floats || p->layer_state_floats};
    TSR__REQUIRE(
        s->on || (p->kept_tokens == 0 && p->kept_sequences == 0 && p->snapshots == 0 &&
                  p->snapshot_tokens == 0),
        "kv_cache_create: kept_tokens, kept_sequences, snapshots and snapshot_tokens are for "
        "layers with states; layer_conv_floats and layer_state_floats are NULL");
    if (!s->on)
        return TSR_OK;
    TSR__TRY(check(p));
    s->sequences = p->sequences;
    s->kept_tokens = p->kept_tokens;
    s->kept_sequences = tsr__kv_cache_kept_sequences(p);
    s->snapshots = p->snapshots;
    s->snapshot_tokens = p->snapshot_tokens;
    s->slots = (int32_t)tsr__kv_cache_slots(p);
    s->next_id = p->snapshots;
    const size_t sequences = (size_t)s->sequences, snapshots = (size_t)s->snapshots;
    s->references = tsr__calloc((size_t)s->slots, sizeof *s->references);
    s->free = tsr__calloc((size_t)s->slots, sizeof *s->free);
    s->of = tsr__calloc(sequences, sizeof *s->of);
    s->snapshot = tsr__calloc(snapshots + 1, sizeof *s->snapshot);
    s->listed = tsr__calloc(sequences * snapshots + 1, sizeof *s->listed);
    s->listed_count = tsr__calloc(sequences, sizeof *s->listed_count);
    s->backup = tsr__calloc(1, backup_bytes(s));
    if (!s->references || !s->free || !s->of || !s->snapshot || !s->listed || !s->listed_count ||
        !s->backup) {
        tsr__states_finish(s);
        return TSR_ERR_NO_MEMORY;
    }
    for (int32_t i = 0; i < s->slots; i++)
        s->free[i] = s->slots - 1 - i;
    s->free_count = s->slots;
    return TSR_OK;
}

void tsr__states_finish(tsr__states *s)
{
    tsr__free(s->references);
    tsr__free(s->free);
    tsr__free(s->of);
    tsr__free(s->snapshot);
    tsr__free(s->listed);
    tsr__free(s->listed_count);
    tsr__free(s->backup);
    *s = (tsr__states){0};
}

/* Slots -------------------------------------------------------------------------------------- */

static void hold(tsr__states *s, int32_t slot)
{
    if (slot >= 0)
        s->references[slot]++;
}

static void release(tsr__states *s, int32_t slot)
{
    if (slot >= 0 && --s->references[slot] == 0)
        s->free[s->free_count++] = slot;
}

/* Takes a free slot, of which the caller has checked that there is one. */
static int32_t take(tsr__states *s)
{
    const int32_t slot = s->free[--s->free_count];
    s->references[slot] = 1;
    return slot;
}

/* Drops the states of a sequence's earlier tokens, except the first `left` of them. */
static void drop_kept(tsr__states *s, int sequence, int left)
{
    tsr__state_of *of = &s->of[sequence];
    while (of->kept_count > left)
        release(s, of->kept[--of->kept_count]);
}

/* Snapshots ---------------------------------------------------------------------------------- */

static tsr__snapshot *find(const tsr__states *s, int64_t id)
{
    tsr__snapshot *found = id > 0 && s->snapshots > 0 ? &s->snapshot[id % s->snapshots] : NULL;
    return found && found->id == id ? found : NULL;
}

static void forget(tsr__states *s, tsr__snapshot *snapshot)
{
    release(s, snapshot->slot);
    *snapshot = (tsr__snapshot){0};
}

/* Ends one use of a snapshot, which may have left. */
static void end_use(tsr__states *s, int64_t id)
{
    tsr__snapshot *found = find(s, id);
    if (found && --found->references == 0)
        forget(s, found);
}

static int64_t *list_of(const tsr__states *s, int sequence)
{
    return s->listed + (size_t)sequence * (size_t)s->snapshots;
}

/* Removes the ids of snapshots that have left, and of those with more than `length` tokens. */
static void prune(tsr__states *s, int sequence, int64_t length)
{
    int64_t *list = list_of(s, sequence);
    int left = 0;
    for (int i = 0; i < s->listed_count[sequence]; i++) {
        const tsr__snapshot *found = find(s, list[i]);
        if (found && found->length <= length)
            list[left++] = list[i];
        else
            end_use(s, list[i]);
    }
    s->listed_count[sequence] = left;
}

/* Returns a sequence's snapshot with the most tokens, but not more than `length`, or NULL. */
static tsr__snapshot *latest(const tsr__states *s, int sequence, int64_t length)
{
    const int64_t *list = list_of(s, sequence);
    tsr__snapshot *best = NULL;
    for (int i = 0; i < s->listed_count[sequence]; i++) {
        tsr__snapshot *found = find(s, list[i]);
        if (found && found->length <= length && (!best || found->length > best->length))
            best = found;
    }
    return best;
}

/* Returns a free entry, for which the least recently used snapshot may have to leave. */
static tsr__snapshot *free_entry(tsr__states *s)
{
    tsr__snapshot *oldest = s->snapshot;
    for (int i = 0; i < s->snapshots; i++) {
        tsr__snapshot *one = &s->snapshot[i];
        if (one->id == 0)
            return one;
        oldest = one->used < oldest->used ? one : oldest;
    }
    forget(s, oldest);
    return oldest;
}

/* Lists a snapshot of a sequence, whose list has no more ids than there are snapshots. */
static void list(tsr__states *s, int sequence, int64_t id)
{
    list_of(s, sequence)[s->listed_count[sequence]++] = id;
}

/* Returns the snapshot of a sequence at its present length, which is taken if there is none. */
static tsr__snapshot *take_snapshot(tsr__states *s, int sequence, int64_t length)
{
    const tsr__state_of *of = &s->of[sequence];
    prune(s, sequence, length);
    tsr__snapshot *entry = latest(s, sequence, length);
    if (entry && entry->length == length)
        return entry;
    entry = free_entry(s);
    prune(s, sequence, length);
    *entry = (tsr__snapshot){.id = s->next_id + (entry - s->snapshot),
                             .slot = of->slot,
                             .length = length,
                             .used = ++s->clock,
                             .references = 1};
    s->next_id += s->snapshots;
    hold(s, of->slot);
    list(s, sequence, entry->id);
    return entry;
}

void tsr__states_end_step(tsr__states *s, int sequence, int64_t length)
{
    if (s->on && s->snapshot_tokens > 0 && length > 0 && length % s->snapshot_tokens == 0)
        (void)take_snapshot(s, sequence, length);
}

int64_t tsr__states_hold(tsr__states *s, int sequence, int64_t length)
{
    if (!s->on || s->snapshots == 0 || s->of[sequence].slot < 0)
        return TSR__NO_SNAPSHOT;
    tsr__snapshot *taken = take_snapshot(s, sequence, length);
    taken->references++;
    return taken->id;
}

void tsr__states_release(tsr__states *s, int64_t id)
{
    end_use(s, id);
}

bool tsr__states_has(const tsr__states *s, int64_t id)
{
    return find(s, id) != NULL;
}

/* Sequences ---------------------------------------------------------------------------------- */

void tsr__states_add(tsr__states *s, int sequence)
{
    if (s->on)
        s->of[sequence] = (tsr__state_of){.slot = TSR__STATE_ZERO};
}

void tsr__states_fork(tsr__states *s, int source, int sequence)
{
    if (!s->on)
        return;
    s->of[sequence] = s->of[source];
    hold(s, s->of[sequence].slot);
    for (int i = 0; i < s->of[sequence].kept_count; i++)
        hold(s, s->of[sequence].kept[i]);
    prune(s, source, INT64_MAX);
    s->listed_count[sequence] = 0;
    for (int i = 0; i < s->listed_count[source]; i++) {
        const int64_t id = list_of(s, source)[i];
        find(s, id)->references++;
        list(s, sequence, id);
    }
}

/* Gives a sequence another slot, whose reference the caller has. */
static void set_slot(tsr__states *s, int sequence, int32_t slot)
{
    release(s, s->of[sequence].slot);
    s->of[sequence].slot = slot;
}

void tsr__states_remove(tsr__states *s, int sequence)
{
    if (!s->on)
        return;
    drop_kept(s, sequence, 0);
    prune(s, sequence, -1);
    set_slot(s, sequence, TSR__STATE_ZERO);
}

int64_t tsr__states_restorable(const tsr__states *s, int sequence, int64_t present, int64_t length)
{
    if (!s->on || length == present || length == 0)
        return length;
    const int kept = s->of[sequence].kept_count;
    if (present - length <= kept)
        return length;
    const tsr__snapshot *found = latest(s, sequence, length);
    return found ? found->length : 0;
}

void tsr__states_restore(tsr__states *s, int sequence, int64_t present, int64_t length)
{
    if (!s->on || length == present)
        return;
    tsr__state_of *of = &s->of[sequence];
    const int64_t back = present - length;
    if (length == 0) {
        drop_kept(s, sequence, 0);
        set_slot(s, sequence, TSR__STATE_ZERO);
    } else if (back <= of->kept_count) {
        set_slot(s, sequence, of->kept[back - 1]);
        for (int i = 0; i < back - 1; i++)
            release(s, of->kept[i]);
        of->kept_count -= (int)back;
        memmove(of->kept, of->kept + back, (size_t)of->kept_count * sizeof *of->kept);
    } else {
        tsr__snapshot *found = latest(s, sequence, length);
        drop_kept(s, sequence, 0);
        found->used = ++s->clock;
        hold(s, found->slot);
        set_slot(s, sequence, found->slot);
    }
    prune(s, sequence, length);
}

void tsr__states_adopt(tsr__states *s, int sequence, int64_t id)
{
    if (!s->on)
        return;
    tsr__snapshot *found = find(s, id);
    drop_kept(s, sequence, 0);
    if (!found) {
        set_slot(s, sequence, TSR__STATE_UNKNOWN);
        return;
    }
    found->used = ++s->clock;
    hold(s, found->slot);
    set_slot(s, sequence, found->slot);
    prune(s, sequence, found->length);
    const tsr__snapshot *present = latest(s, sequence, found->length);
    if (present != found) {
        found->references++;
        list(s, sequence, id);
    }
}

void tsr__states_drop_kept(tsr__states *s, int sequence)
{
    if (s->on)
        drop_kept(s, sequence, 0);
}

/* Steps -------------------------------------------------------------------------------------- */

static void copy_out(tsr__states *s)
{
    int32_t *to = s->backup;
    memcpy(to, s->references, (size_t)s->slots * sizeof *to);
    memcpy(to + s->slots, s->free, (size_t)s->slots * sizeof *to);
    memcpy(to + 2 * (size_t)s->slots, s->of, (size_t)s->sequences * sizeof *s->of);
    s->backup_free_count = s->free_count;
}

void tsr__states_undo(tsr__states *s)
{
    if (!s->on)
        return;
    const int32_t *from = s->backup;
    memcpy(s->references, from, (size_t)s->slots * sizeof *from);
    memcpy(s->free, from + s->slots, (size_t)s->slots * sizeof *from);
    memcpy(s->of, from + 2 * (size_t)s->slots, (size_t)s->sequences * sizeof *s->of);
    s->free_count = s->backup_free_count;
}

bool tsr__states_keeps_each(const tsr__states *s, int count, int64_t most_tokens)
{
    return s->on && s->kept_tokens > 0 && count <= s->kept_sequences && most_tokens >= 1 &&
           most_tokens <= TSR__DELTA_RECURRENT_TOKENS;
}

/* The number of states that a row of a step writes to new slots. */
static int64_t new_states(const tsr__states *s, bool each, int64_t tokens)
{
    if (!each)
        return tokens > 0;
    return tokens < s->kept_tokens + 1 ? tokens : s->kept_tokens + 1;
}

/* True if the step can write the slot that it reads. */
static bool in_place(const tsr__states *s, bool each, int sequence)
{
    const int32_t slot = s->of[sequence].slot;
    return !each && slot >= 0 && s->references[slot] == 2; /* the sequence and the step */
}

/* Drops earlier states of the sequences that get no tokens in the step. */
static void drop_others(tsr__states *s, int count, const int *sequences, const int64_t *tokens)
{
    for (int i = 0; i < s->sequences; i++) {
        bool gets_some = false;
        for (int k = 0; k < count; k++)
            gets_some = gets_some || (sequences[k] == i && tokens[k] > 0);
        if (!gets_some)
            drop_kept(s, i, 0);
    }
}

/* Takes slots for the new states of a sequence, and keeps those of earlier ones that are left. */
static void write_row(tsr__states *s, bool each, int sequence, int64_t tokens, int32_t *writes)
{
    tsr__state_of *of = &s->of[sequence];
    const tsr__state_of old = *of;
    const int64_t taken = new_states(s, each, tokens), last = each ? tokens - 1 : 0;
    for (int64_t i = 0; i < taken; i++)
        writes[last - i] = take(s);
    of->slot = writes[last];
    of->kept_count = 0;
    for (int64_t i = 1; i < taken; i++)
        of->kept[of->kept_count++] = writes[last - i];
    if (each && old.slot >= 0 && of->kept_count < s->kept_tokens)
        of->kept[of->kept_count++] = old.slot;
    else
        release(s, old.slot);
    for (int i = 0; i < old.kept_count; i++) /* as many as there is room for: see below */
        of->kept[of->kept_count++] = old.kept[i];
}

tsr_status tsr__states_begin(tsr__states *s, int count, const int *sequences, const int64_t *tokens,
                             int64_t most_tokens, int32_t *reads, int32_t *writes)
{
    if (!s->on)
        return TSR_OK;
    const bool each = tsr__states_keeps_each(s, count, most_tokens);
    const int64_t width = each ? most_tokens : 1;
    int64_t needed = 0;
    for (int i = 0; i < count; i++)
        TSR__REQUIRE(s->of[sequences[i]].slot != TSR__STATE_UNKNOWN,
                     "kv_cache: sequence %d has tokens without a state", sequences[i]);
    copy_out(s);
    for (int64_t i = 0; i < count * width; i++)
        writes[i] = -1;
    /* The slots that the step reads stay in use until all others are chosen. */
    for (int i = 0; i < count; i++) {
        reads[i] = s->of[sequences[i]].slot;
        hold(s, reads[i]);
        const int64_t left = s->kept_tokens - new_states(s, each, tokens[i]);
        if (tokens[i] > 0)
            drop_kept(s, sequences[i], each && left > 0 ? (int)left : 0);
    }
    for (int i = 0; i < count; i++)
        if (!in_place(s, each, sequences[i]))
            needed += new_states(s, each, tokens[i]);
    if (needed > s->free_count)
        drop_others(s, count, sequences, tokens);
    if (needed > s->free_count) { /* not reached: see tsr__kv_cache_slots */
        const int32_t free_count = s->free_count;
        tsr__states_undo(s);
        return tsr__fail(TSR_ERR_DEVICE_MEMORY,
                         "kv_cache: the step takes %lld slots of states; %d of %d are free",
                         (long long)needed, free_count, s->slots);
    }
    for (int i = 0; i < count; i++) {
        if (tokens[i] == 0)
            continue;
        if (in_place(s, each, sequences[i]))
            writes[i] = reads[i];
        else
            write_row(s, each, sequences[i], tokens[i], writes + i * width);
    }
    for (int i = 0; i < count; i++)
        release(s, reads[i]);
    return TSR_OK;
}
