/* Which processes belong to the job. Those that the job starts with do from the beginning. One that
 * was started in the place of a failed one belongs to it when it has joined, which it reports.
 * Without members the job is over: processes that wait to join would wait in vain. If the program
 * has said that it can be restarted, all ranks are then started again. */
#include <signal.h>
#include <stddef.h>

#include "cli/launch/launch.h"

static bool is_member(const launch_rank *rank)
{
    return !rank->joins || rank->has_met;
}

static int count_members(const launch_job *job)
{
    int count = 0;
    for (int i = 0; i < job->started; i++)
        count += job->ranks[i].running && !job->ranks[i].ending && is_member(&job->ranks[i]);
    return count;
}

void launch_members_kill_waiting(const launch_job *job)
{
    for (int i = 0; i < job->started; i++)
        if (job->ranks[i].running && !is_member(&job->ranks[i]))
            kill(-job->ranks[i].pid, SIGKILL);
}

static bool can_restart(const launch_job *job)
{
    return !job->stopping && !job->restarting && job->reports.restart[0] != '\0' &&
           job->respawns > 0 && !job->some_succeeded;
}

const char *launch_members_lost(const launch_job *job, const launch_rank *rank, bool killed)
{
    const bool some_left = count_members(job) > 0;
    /* A rank that exits by itself finds the same problem after a restart, unless it has said that
     * only the state is lost. */
    if (!killed || !can_restart(job))
        return NULL;
    if (!some_left)
        return "no member of the job is left";
    /* The ranks of the start cannot meet without this one. */
    return !rank->joins && !rank->has_met ? "a rank was lost before all had met" : NULL;
}

const char *launch_members_gave_up(const launch_job *job)
{
    return job->reports.state_lost && can_restart(job) ? "the ranks have lost the job's state"
                                                       : NULL;
}

bool launch_members_can_grow(const launch_job *job)
{
    return !job->stopping && !job->restarting && !job->reports.state_lost && count_members(job) > 0;
}

bool launch_members_are_gone(const launch_job *job)
{
    return !job->stopping && !job->restarting && job->running > 0 && count_members(job) == 0;
}
