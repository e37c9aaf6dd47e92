#include "comm/algorithms/sim.h"

#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"

typedef struct sim_message {
    const element *from; /* the sender's memory, if sends wait for their receives */
    element *copy;       /* its contents when the send started */
    uint64_t count;
    uint64_t heard; /* what the sender had heard (rank.heard) when the send started */
    bool taken;
} sim_message;

/* Messages from one rank to another that have not been received yet, in order. */
typedef struct sim_queue {
    sim_message messages[SIM_RANKS * 2];
    int first, count;
} sim_queue;

typedef struct sim_state {
    size_t next;  /* the first step of the round */
    size_t after; /* the first step after the round */
    bool posted;
    bool done[SIM_RANKS * 4]; /* which steps of the round are done */
    sim_message *sent[SIM_RANKS * 4];
} sim_state;

static sim_queue queues[SIM_RANKS][SIM_RANKS];
static sim_state states[SIM_RANKS];

element sim_leaf(int rank, uint64_t index)
{
    return (element){.index = (uint32_t)index,
                     .ranks = UINT64_C(1) << rank,
                     .order = ((uint64_t)rank + 1) * UINT64_C(0x9E3779B97F4A7C15)};
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * UINT64_C(0xBF58476D1CE4E5B9);
    return x ^ (x >> 29);
}

static element *memory_of(sim_rank *rank, tsr__span span)
{
    uint64_t limit = span.array == TSR__AT_SEND   ? rank->send_count
                     : span.array == TSR__AT_RECV ? rank->recv_count
                                                  : rank->schedule.temp_count;
    element *start = span.array == TSR__AT_SEND   ? rank->send
                     : span.array == TSR__AT_RECV ? rank->recv
                                                  : rank->temp;
    ck_assert(span.start <= limit && span.count <= limit - span.start);
    return start + span.start;
}

static bool apart(const element *a, uint64_t a_count, const element *b, uint64_t b_count)
{
    return a_count == 0 || b_count == 0 || a + a_count <= b || b + b_count <= a;
}

static bool is_message(const tsr__step *step)
{
    return step->kind == TSR__STEP_SEND || step->kind == TSR__STEP_RECV;
}

/* Checks that memory of a receive does not overlap that of any other message in its round. */
static void check_round(sim_rank *rank, const sim_state *state)
{
    for (size_t i = state->next; i < state->after; i++) {
        const tsr__step *in = &rank->schedule.steps[i];
        if (in->kind != TSR__STEP_RECV)
            continue;
        for (size_t j = state->next; j < state->after; j++) {
            const tsr__step *other = &rank->schedule.steps[j];
            if (j == i || !is_message(other))
                continue;
            tsr__span span = other->kind == TSR__STEP_SEND ? other->from : other->to;
            ck_assert(
                apart(memory_of(rank, in->to), in->to.count, memory_of(rank, span), span.count));
        }
    }
}

static void post(sim_job *sim, int me)
{
    sim_rank *rank = &sim->ranks[me];
    sim_state *state = &states[me];
    const tsr__schedule *schedule = &rank->schedule;
    state->after = state->next;
    while (state->after < schedule->count &&
           schedule->steps[state->after].round == schedule->steps[state->next].round)
        state->after++;
    ck_assert(state->after - state->next <= SIM_RANKS * 4);
    memset(state->done, 0, sizeof state->done);
    check_round(rank, state);
    for (size_t i = state->next; i < state->after; i++) {
        const tsr__step *step = &schedule->steps[i];
        if (step->kind != TSR__STEP_SEND)
            continue;
        ck_assert(step->peer >= 0 && step->peer < sim->size && step->peer != me);
        sim_queue *queue = &queues[me][step->peer];
        ck_assert(queue->count < (int)(sizeof queue->messages / sizeof queue->messages[0]));
        sim_message *message = &queue->messages[queue->count++];
        *message = (sim_message){
            .from = memory_of(rank, step->from), .count = step->from.count, .heard = rank->heard};
        message->copy = malloc((step->from.count + 1) * sizeof *message->copy);
        memcpy(message->copy, message->from, step->from.count * sizeof *message->copy);
        for (uint64_t e = 0; e < step->from.count; e++)
            ck_assert(message->copy[e].index != POISON);
        state->sent[i - state->next] = message;
    }
    state->posted = true;
}

static element combined(element a, element b)
{
    ck_assert(a.index == b.index && a.index != POISON && !(a.ranks & b.ranks));
    ck_assert(a.divided == 0 && b.divided == 0);
    return (element){
        .index = a.index, .ranks = a.ranks | b.ranks, .order = mix(mix(a.order) + mix(b.order))};
}

/* Checks that an exact step combines only contributions of single ranks, not partial results.
 * The order of exact steps does not matter. */
static void exact(sim_rank *rank, const tsr__step *step)
{
    const element *from = memory_of(rank, step->from);
    element *to = memory_of(rank, step->to);
    for (uint64_t e = 0; e < step->from.count; e++) {
        element sum = from[e];
        sum.order = 0;
        for (int slot = 0; slot < step->slots; slot++) {
            tsr__span span = step->with;
            span.start += (uint64_t)slot * span.count;
            ck_assert(span.count == step->from.count);
            const element *with = memory_of(rank, span);
            ck_assert((with[e].ranks & (with[e].ranks - 1)) == 0);
            sum = combined(sum, with[e]);
            sum.order = 0;
        }
        sum.divided = 1;
        to[e] = sum;
    }
}

static void local(sim_rank *rank, const tsr__step *step)
{
    if (step->kind == TSR__STEP_EXACT) {
        exact(rank, step);
        return;
    }
    element *to = memory_of(rank, step->to);
    if (step->kind == TSR__STEP_DIVIDE) {
        for (uint64_t e = 0; e < step->to.count; e++)
            to[e].divided++;
        return;
    }
    const element *from = memory_of(rank, step->from);
    ck_assert(step->from.count == step->to.count);
    ck_assert(from == to || apart(from, step->from.count, to, step->to.count));
    if (step->kind == TSR__STEP_COPY) {
        memmove(to, from, step->to.count * sizeof *to);
        return;
    }
    const element *with = memory_of(rank, step->with);
    ck_assert(step->with.count == step->to.count);
    ck_assert(with == to || apart(with, step->with.count, to, step->to.count));
    for (uint64_t e = 0; e < step->to.count; e++)
        to[e] = combined(from[e], with[e]);
}

/* Receives the messages that have arrived. Returns false if there were none. */
static bool receive(sim_job *sim, int me)
{
    sim_rank *rank = &sim->ranks[me];
    sim_state *state = &states[me];
    bool moved = false;
    for (size_t i = state->next; i < state->after; i++) {
        const tsr__step *step = &rank->schedule.steps[i];
        bool *done = &state->done[i - state->next];
        if (*done || !is_message(step)) {
            *done = *done || step->kind != TSR__STEP_INNER;
            continue;
        }
        if (step->kind == TSR__STEP_SEND) {
            *done = !sim->rendezvous || state->sent[i - state->next]->taken;
            moved = moved || *done;
            continue;
        }
        ck_assert(step->peer >= 0 && step->peer < sim->size && step->peer != me);
        sim_queue *queue = &queues[step->peer][me];
        if (queue->first == queue->count)
            continue;
        sim_message *message = &queue->messages[queue->first++];
        ck_assert(message->count == step->to.count);
        memcpy(memory_of(rank, step->to), sim->rendezvous ? message->from : message->copy,
               message->count * sizeof *message->copy);
        message->taken = true;
        rank->heard |= message->heard;
        *done = moved = true;
    }
    return moved;
}

/* Returns the inner step (a collective inside a host) that a rank has begun, or NULL. */
static const tsr__step *inner_step(const sim_job *sim, int rank)
{
    const sim_state *state = &states[rank];
    const tsr__schedule *schedule = &sim->ranks[rank].schedule;
    const bool begun = state->posted && state->next < schedule->count && !state->done[0] &&
                       schedule->steps[state->next].kind == TSR__STEP_INNER;
    return begun ? &schedule->steps[state->next] : NULL;
}

/* Combines element `index` of the inputs of `count` ranks from `first` on, in the order of the
 * tree of additions. */
static element inner_sum(sim_job *sim, int first, int count, uint64_t index)
{
    element level[SIM_RANKS];
    int power = 1, ranks = 0;
    while (2 * power <= count)
        power *= 2;
    for (int leaf = 0; leaf < power; leaf++) {
        for (int i = 0; i < 1 + (leaf < count - power); i++, ranks++) {
            sim_rank *rank = &sim->ranks[first + ranks];
            const element own = memory_of(rank, inner_step(sim, first + ranks)->from)[index];
            level[leaf] = i == 0 ? own : combined(level[leaf], own);
        }
    }
    for (int distance = 1; distance < power; distance *= 2) {
        for (int i = 0; i < power; i += 2 * distance)
            level[i] = combined(level[i], level[i + distance]);
    }
    return level[0];
}

/* Computes element `index` of the data that the inner step of rank first + i produces. */
static element inner_element(sim_job *sim, int first, int count, int i, uint64_t index)
{
    const tsr__step *step = inner_step(sim, first + i);
    const tsr__blocks blocks = tsr__inner_blocks(&sim->ranks[first + i].schedule, step);
    int from = 0;
    switch (step->inner) {
    case TSR__INNER_ALL_REDUCE:
    case TSR__INNER_REDUCE:
        return inner_sum(sim, first, count, index);
    case TSR__INNER_REDUCE_SCATTER:
        return inner_sum(sim, first, count, blocks.starts[i] + index);
    case TSR__INNER_ALL_GATHER:
        while (index < blocks.starts[from] || blocks.ends[from] <= index)
            from++;
        ck_assert(from < count);
        return memory_of(&sim->ranks[first + from],
                         inner_step(sim, first + from)->from)[index - blocks.starts[from]];
    case TSR__INNER_BROADCAST:
        return memory_of(&sim->ranks[step->peer], inner_step(sim, step->peer)->to)[index];
    case TSR__INNER_BARRIER:
        break;
    }
    ck_abort();
}

/* Checks that the ranks of a subtree have begun the same inner step. */
static void check_inner(sim_job *sim, int first, int count)
{
    const tsr__step *step = inner_step(sim, first);
    for (int i = 0; i < count; i++) {
        const tsr__step *other = inner_step(sim, first + i);
        const tsr__blocks blocks = tsr__inner_blocks(&sim->ranks[first + i].schedule, other);
        const tsr__blocks firsts = tsr__inner_blocks(&sim->ranks[first].schedule, step);
        uint64_t total = 0;
        ck_assert(other->inner == step->inner && other->peer == step->peer);
        ck_assert(step->peer >= first && step->peer < first + count);
        /* An inner step is alone in its round. */
        ck_assert(states[first + i].after == states[first + i].next + 1);
        if (!blocks.starts)
            continue;
        ck_assert(other->ranks == count);
        for (int b = 0; b < count; b++) {
            ck_assert(blocks.starts[b] == firsts.starts[b] && blocks.ends[b] == firsts.ends[b]);
            total += tsr__block_count(&blocks, b);
        }
        const bool scatter = other->inner == TSR__INNER_REDUCE_SCATTER;
        ck_assert((scatter ? other->to : other->from).count == tsr__block_count(&blocks, i));
        ck_assert((scatter ? other->from : other->to).count == total);
    }
}

/* Executes an inner step that all ranks of the subtree of `me` have begun. */
static bool inner(sim_job *sim, int me)
{
    element *results[SIM_RANKS];
    if (!inner_step(sim, me))
        return false;
    const int first = sim->ranks[me].hierarchy->first, count = sim->ranks[me].hierarchy->count;
    for (int rank = first; rank < first + count; rank++) {
        if (!inner_step(sim, rank))
            return false;
    }
    check_inner(sim, first, count);
    for (int i = 0; i < count; i++) {
        const tsr__step *step = inner_step(sim, first + i);
        results[i] = malloc((step->to.count + 1) * sizeof *results[i]);
        for (uint64_t e = 0; e < step->to.count; e++)
            results[i][e] = inner_element(sim, first, count, i, e);
    }
    for (int i = 0; i < count; i++) {
        const tsr__step *step = inner_step(sim, first + i);
        if (step->inner != TSR__INNER_REDUCE || step->peer == first + i)
            memcpy(memory_of(&sim->ranks[first + i], step->to), results[i],
                   step->to.count * sizeof *results[i]);
        free(results[i]);
    }
    uint64_t heard = 0;
    for (int rank = first; rank < first + count; rank++)
        heard |= sim->ranks[rank].heard;
    for (int rank = first; rank < first + count; rank++) {
        sim->ranks[rank].heard |= heard;
        states[rank].done[0] = true;
    }
    return true;
}

static bool finish_round(sim_job *sim, int me)
{
    sim_state *state = &states[me];
    for (size_t i = state->next; i < state->after; i++) {
        if (!state->done[i - state->next])
            return false;
    }
    for (size_t i = state->next; i < state->after; i++) {
        const tsr__step *step = &sim->ranks[me].schedule.steps[i];
        if (!is_message(step) && step->kind != TSR__STEP_INNER)
            local(&sim->ranks[me], &sim->ranks[me].schedule.steps[i]);
    }
    state->next = state->after;
    state->posted = false;
    return true;
}

void sim_run(sim_job *sim)
{
    memset(states, 0, sizeof states);
    for (int from = 0; from < sim->size; from++) {
        for (int to = 0; to < sim->size; to++)
            queues[from][to].first = queues[from][to].count = 0;
    }
    for (int r = 0; r < sim->size; r++) {
        sim_rank *rank = &sim->ranks[r];
        ck_assert(rank->schedule.status == TSR_OK);
        rank->heard = UINT64_C(1) << r;
        rank->temp = malloc((rank->schedule.temp_count + 1) * sizeof *rank->temp);
        for (uint64_t i = 0; i <= rank->schedule.temp_count; i++)
            rank->temp[i] = (element){.index = POISON};
    }
    bool moved = true, unfinished = true;
    while (unfinished) {
        ck_assert(moved); /* otherwise this is a deadlock */
        moved = unfinished = false;
        for (int r = 0; r < sim->size; r++) {
            if (states[r].next == sim->ranks[r].schedule.count)
                continue;
            unfinished = true;
            if (!states[r].posted) {
                post(sim, r);
                moved = true;
            }
            moved = receive(sim, r) || moved;
            moved = inner(sim, r) || moved;
            moved = finish_round(sim, r) || moved;
        }
    }
    for (int from = 0; from < sim->size; from++) {
        for (int to = 0; to < sim->size; to++) {
            sim_queue *queue = &queues[from][to];
            ck_assert(queue->first == queue->count); /* every message has been received */
            for (int i = 0; i < queue->count; i++)
                free(queue->messages[i].copy);
        }
    }
}

void sim_finish(sim_job *sim)
{
    for (int r = 0; r < sim->size; r++) {
        sim_rank *rank = &sim->ranks[r];
        free(rank->temp);
        tsr__schedule_finish(&rank->schedule);
    }
}
