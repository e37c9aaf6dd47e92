/* The memory behind boards: each process shares one piece, which holds a page for each of its
 * communicators. */
#include <string.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "base/error.h"
#include "comm/job.h"
#include "comm/shm/state.h"

#define PAGES 16

typedef struct page_state {
    bool is_taken;
    /* Of a communicator that has ended here: its number, and who may still look. A number alone may
     * be that of two, see tags.h; with a rank of the job it is not. */
    uint32_t comm;
    int looker_count;
    int lookers[TSR__BOARD_RANKS];
} page_state;

struct tsr__boards {
    tsr__memory_key key;
    tsr__board_page **of; /* PAGES of them, of each rank of the job; NULL: out of reach */
    page_state states[PAGES];
    bool sees_all; /* of this host */
};

tsr_status tsr__boards_wanted(bool *out)
{
    const char *wish = tsr__env_text("TESSERA_SHARED_MEMORY");
    const bool off = wish && strcmp(wish, "off") == 0;
    TSR__REQUIRE(!wish || off || strcmp(wish, "on") == 0,
                 "TESSERA_SHARED_MEMORY is '%.80s', not on or off", wish);
    *out = !off;
    return TSR_OK;
}

tsr_status tsr__boards_open(tsr__job *job, tsr__boards **out)
{
    bool wanted;
    *out = NULL;
    TSR__TRY(tsr__boards_wanted(&wanted));
    if (!wanted)
        return TSR_OK;
    tsr__boards *boards = tsr__calloc(1, sizeof *boards);
    if (boards)
        boards->of = tsr__calloc((size_t)job->size, sizeof(tsr__board_page *));
    if (!boards || !boards->of) {
        tsr__free(boards);
        return TSR_ERR_NO_MEMORY;
    }
    boards->of[job->rank] = tsr__memory_share(PAGES * sizeof(tsr__board_page), &boards->key);
    boards->sees_all = boards->of[job->rank] != NULL;
    *out = boards;
    return TSR_OK;
}

void tsr__boards_close(tsr__job *job)
{
    tsr__boards *boards = job->boards;
    if (!boards)
        return;
    tsr__memory_hide(&boards->key);
    for (int i = 0; i < job->size; i++)
        tsr__memory_unmap(boards->of[i], PAGES * sizeof(tsr__board_page));
    tsr__free(boards->of);
    tsr__free(boards);
    job->boards = NULL;
}

tsr__memory_key tsr__boards_key(const tsr__boards *boards)
{
    return boards ? boards->key : (tsr__memory_key){.file = -1};
}

void tsr__boards_look(tsr__job *job, int peer, const tsr__memory_key *key)
{
    if (!job->boards)
        return;
    if (job->boards->sees_all)
        job->boards->of[peer] = tsr__memory_look(key, PAGES * sizeof(tsr__board_page));
    if (!job->boards->of[peer])
        job->boards->sees_all = false;
}

void tsr__boards_hide(tsr__job *job)
{
    if (job->boards)
        tsr__memory_hide(&job->boards->key);
}

/* A page of which the last goes is free. */
static void drop_looker(page_state *state, int at)
{
    state->lookers[at] = state->lookers[--state->looker_count];
    state->is_taken = state->looker_count > 0;
}

/* What has ended does not say any more that it leaves. */
static void drop_ended(tsr__job *job)
{
    tsr__transport_poll_processes(job->transport);
    for (int i = 0; i < PAGES; i++) {
        page_state *state = &job->boards->states[i];
        for (int at = state->looker_count - 1; at >= 0; at--) {
            if (tsr__transport_has_ended(job->transport, state->lookers[at]))
                drop_looker(state, at);
        }
    }
}

int tsr__boards_take(tsr__job *job)
{
    if (!job->boards || !job->boards->sees_all)
        return -1;
    drop_ended(job);
    for (int i = 0; i < PAGES; i++) {
        if (job->boards->states[i].is_taken)
            continue;
        job->boards->states[i] = (page_state){.is_taken = true};
        /* Tickets of who was there before. */
        tsr__board_page *page = &job->boards->of[job->rank][i];
        atomic_store(&page->heads[0].line.ticket, 0);
        atomic_store(&page->heads[1].line.ticket, 0);
        atomic_store(&page->sleeping, 0);
        return i;
    }
    return -1;
}

void tsr__boards_give_back(tsr__job *job, int page)
{
    if (page >= 0)
        job->boards->states[page].is_taken = false;
}

void tsr__boards_retire(const tsr_comm *comm)
{
    const tsr__job *job = comm->job;
    page_state *state = &job->boards->states[comm->board->page];
    *state = (page_state){.comm = comm->id};
    for (int i = 0; i < comm->size; i++) {
        if (i != comm->rank && !comm->news[i].left &&
            !tsr__transport_has_ended(job->transport, comm->world_of[i]))
            state->lookers[state->looker_count++] = comm->world_of[i];
    }
    state->is_taken = state->looker_count > 0;
}

void tsr__boards_left(tsr__job *job, uint32_t comm, int peer)
{
    for (int i = 0; job->boards && i < PAGES; i++) {
        page_state *state = &job->boards->states[i];
        for (int at = state->looker_count - 1; at >= 0 && state->comm == comm; at--) {
            if (state->lookers[at] == peer)
                drop_looker(state, at);
        }
    }
}

tsr_status tsr__board_create(int size, tsr__board **out)
{
    tsr__board *board = tsr__calloc(1, sizeof *board);
    if (!board)
        return TSR_ERR_NO_MEMORY;
    board->pages = tsr__calloc((size_t)size, sizeof(tsr__board_page *));
    if (!board->pages) {
        tsr__free(board);
        return TSR_ERR_NO_MEMORY;
    }
    *out = board;
    return TSR_OK;
}

void tsr__board_use(tsr_comm *comm, tsr__board *board, const int32_t *pages)
{
    for (int i = 0; i < comm->size; i++)
        board->pages[i] = comm->job->boards->of[comm->world_of[i]] + pages[i];
    board->mine = board->pages[comm->rank];
    board->page = pages[comm->rank];
    board->ticket = 1;
    comm->board = board;
}

void tsr__board_destroy(tsr__board **board)
{
    if (!*board)
        return;
    tsr__free((*board)->pages);
    tsr__free(*board);
    *board = NULL;
}
