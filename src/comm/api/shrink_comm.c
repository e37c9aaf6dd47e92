/* Creates a communicator of the ranks that are left after a failure. The ranks agree on its members
 * (recovery/), and then create a new job. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/struct_size.h"
#include "comm/api/comm.h"
#include "comm/failure/failure.h"
#include "comm/progress/progress.h"
#include "comm/recovery/agreement.h"

/* The state of one call of tsr_comm_shrink: the ranks that may be left, and the generation on which
 * they agreed last. */
typedef struct shrinking {
    tsr_comm *comm;
    tsr__roster roster; /* the key, the lineage, and the present generation */
    tsr__member *members;
    int size;
    bool force;
    uint64_t timeout_ns, deadline_ns;
} shrinking;

/* Sets the lineage: the number that identifies a communicator and all those that replace it after
 * failures. The first communicator of a job continues the job's lineage. Every other communicator
 * starts its own, computed from its number and its first rank, because the numbers of communicators
 * are not unique (message_tags.h). */
static void find_lineage(shrinking *s)
{
    const tsr_comm *comm = s->comm;
    const tsr__roster *roster = &comm->job->roster;
    s->roster = *roster;
    if (comm->id == 0)
        return;
    uint64_t hash = tsr__hash(TSR__HASH_START, &roster->lineage, sizeof roster->lineage);
    hash = tsr__hash(hash, &roster->generation, sizeof roster->generation);
    hash = tsr__hash(hash, &comm->id, sizeof comm->id);
    s->roster.lineage =
        tsr__hash(hash, &roster->cards[comm->world_of[0]].uid, sizeof roster->cards[0].uid);
    s->roster.generation = 0;
}

static tsr_status list_members(shrinking *s)
{
    const tsr_comm *comm = s->comm;
    s->size = comm->size;
    s->members = tsr__calloc((size_t)s->size, sizeof *s->members);
    if (!s->members)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < s->size; i++)
        s->members[i] =
            (tsr__member){.card = comm->job->roster.cards[comm->world_of[i]], .rank = i};
    return TSR_OK;
}

/* Removes from s->members the ranks that `decision` leaves out. */
static void remove_left_out(shrinking *s, const tsr__decision *decision)
{
    int count = 0;
    for (int i = 0; i < s->size; i++) {
        bool stays = false;
        for (int j = 0; j < decision->count; j++)
            stays = stays || decision->uids[j] == s->members[i].card.uid;
        if (stays)
            s->members[count++] = s->members[i];
    }
    s->size = count;
    s->roster.generation = decision->generation;
}

/* Applies decisions that earlier calls of tsr_comm_shrink on this communicator made before they
 * failed. */
static tsr_status apply_earlier_decisions(shrinking *s)
{
    const tsr__decision *known;
    while ((known = tsr__recovery_find(s->roster.recovery, s->roster.lineage,
                                       s->roster.generation + 1))) {
        if (known->without_me)
            return tsr__fail(TSR_ERR_PEER_LOST,
                             "the other ranks have gone on without this rank, which did not answer "
                             "in time");
        remove_left_out(s, known);
    }
    return TSR_OK;
}

static int find_self(const shrinking *s)
{
    for (int i = 0; i < s->size; i++) {
        if (s->members[i].rank == s->comm->rank)
            return i;
    }
    return -1;
}

/* Lets the old communicator progress, so that other ranks can cancel their messages to this rank.
 * Records which processes have ended. */
static void progress_old_comm(void *user, tsr__member *members, int size)
{
    tsr_comm *comm = user;
    tsr__job *job = comm->job;
    (void)tsr__job_progress(job);
    tsr__transport_poll_processes(job->transport);
    for (int i = 0; i < size; i++) {
        if (tsr__transport_has_ended(job->transport, comm->world_of[members[i].rank]))
            members[i].ended = true;
    }
}

static tsr_status create_alone(const shrinking *s, const tsr_comm_params *params,
                               const tsr__bootstrap_limit *limit, const tsr__origin *origin,
                               tsr_comm **out)
{
    tsr__bootstrap *bootstrap;
    (void)s;
    TSR__TRY(tsr__bootstrap_open(
        &(tsr__bootstrap_params){.kind = TSR__BOOTSTRAP_SINGLE, .timeout_ns = limit->timeout_ns},
        &bootstrap));
    return tsr__comm_create_over(bootstrap, params, limit, origin, out);
}

/* Creates the communicator of the members. `rendezvous` connects them; NULL if this rank is the
 * only member. */
static tsr_status create_shrunk(const shrinking *s, tsr__rendezvous *rendezvous, tsr_comm **out)
{
    const tsr_comm *comm = s->comm;
    const tsr_comm_params params = {.struct_size = sizeof params,
                                    .timeout_ns = comm->timeout_ns,
                                    .reproducible = comm->reproducible};
    const tsr__origin origin = {.recovery = s->roster.recovery,
                                .roster = s->roster.recovery ? &s->roster : NULL,
                                .confirms = true};
    const uint64_t now = tsr__now_ns(), left = s->deadline_ns > now ? s->deadline_ns - now : 1;
    /* Use only half of the time that is left, so that the ranks can agree again if a member is lost
     * meanwhile. */
    const tsr__bootstrap_limit limit = tsr__bootstrap_limit_from_now(left / 2 + 1);
    if (!rendezvous)
        return create_alone(s, &params, &limit, &origin, out);
    tsr__bootstrap *bootstrap;
    TSR__TRY(tsr__bootstrap_open_adopted(rendezvous, find_self(s), s->size, &limit, &bootstrap));
    return tsr__comm_create_over(bootstrap, &params, &limit, &origin, out);
}

static tsr_status agree_on_members(shrinking *s, tsr__rendezvous **rendezvous)
{
    const uint64_t now = tsr__now_ns();
    const uint64_t left = s->deadline_ns > now ? s->deadline_ns - now : 0;
    const tsr__decision *decision;
    const tsr__agreement_params params = {.recovery = s->roster.recovery,
                                          .key = s->roster.key,
                                          .lineage = s->roster.lineage,
                                          .generation = s->roster.generation,
                                          .members = s->members,
                                          .size = s->size,
                                          .self = find_self(s),
                                          .force = s->force,
                                          .collect_until_ns = now + left / 2,
                                          .deadline_ns = s->deadline_ns,
                                          .timeout_ns = s->timeout_ns,
                                          .progress = progress_old_comm,
                                          .user = s->comm};
    TSR__TRY(tsr__agree(&params, &decision, rendezvous));
    remove_left_out(s, decision);
    return TSR_OK;
}

/* Returns whether a communicator could not be created because a member has been lost. UCX reports
 * some such losses as missing resources. */
static bool may_be_lost_member(tsr_status status)
{
    return status == TSR_ERR_PEER_LOST || status == TSR_ERR_TIMEOUT || status == TSR_ERR_IO;
}

/* Returns the error if the deadline has passed and the last attempt failed with an error of UCX
 * about missing resources, which a lost rank can cause. */
static tsr_status fail_out_of_time(const shrinking *s)
{
    char why[256];
    (void)snprintf(why, sizeof why, "%s", tsr_last_error());
    return tsr__fail(TSR_ERR_TIMEOUT,
                     "the ranks did not connect within %.1f s; the last error was: %s",
                     (double)s->timeout_ns / 1e9, why);
}

/* Agrees on the members and creates the communicator. Does both again if another rank is lost
 * meanwhile. */
static tsr_status shrink_until_deadline(shrinking *s, tsr_comm **out)
{
    TSR__TRY(apply_earlier_decisions(s));
    for (;;) {
        tsr__rendezvous *rendezvous = NULL;
        if (s->size > 1)
            TSR__TRY(agree_on_members(s, &rendezvous));
        /* the members are not connected, because the decision was made earlier: agree again */
        if (s->size > 1 && !rendezvous)
            continue;
        const tsr_status status = create_shrunk(s, rendezvous, out);
        if (status == TSR_OK || !may_be_lost_member(status))
            return status;
        if (tsr__now_ns() >= s->deadline_ns)
            return status == TSR_ERR_IO ? fail_out_of_time(s) : status;
        tsr__log(TSR_LOG_WARNING, "comm: rank %d: shrink: agreeing again: %s", s->comm->rank,
                 tsr_last_error());
    }
}

static tsr_status check_shrink(const tsr_comm *comm, tsr_comm *const *out)
{
    TSR__REQUIRE(comm && out, "shrink: %s is NULL", comm ? "out" : "comm");
    TSR__TRY(tsr__job_refuse_child(comm->job, "shrink"));
    TSR__REQUIRE(!comm->was_shrunk, "shrink: this communicator has been shrunk already: shrink the "
                                    "communicator that this made");
    const tsr__recovery *recovery = comm->job->roster.recovery;
    if (comm->size > 1 && recovery->listener < 0)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "shrink: this process cannot listen for the other ranks: %s",
                         recovery->why);
    return TSR_OK;
}

tsr_status tsr_comm_shrink(tsr_comm *comm, const tsr_comm_shrink_params *params, tsr_comm **out)
{
    TSR__TRY(check_shrink(comm, out));
    TSR__TAKE(tsr_comm_shrink_params, params);
    shrinking s = {.comm = comm, .force = params->force};
    s.timeout_ns = params->timeout_ns ? params->timeout_ns : comm->timeout_ns;
    s.deadline_ns = tsr__deadline_ns(s.timeout_ns);
    TSR__TRY(list_members(&s));
    find_lineage(&s);
    tsr__comm_fail(comm, true, TSR_ERR_PEER_LOST, "rank %d shrinks the communicator", comm->rank);
    (void)tsr__job_apply(comm->job);
    const tsr_status status =
        comm->size > 1 ? shrink_until_deadline(&s, out) : create_shrunk(&s, NULL, out);
    tsr__free(s.members);
    comm->was_shrunk = status == TSR_OK;
    return status == TSR_OK ? TSR_OK : tsr__fail_context(status, "shrink");
}
