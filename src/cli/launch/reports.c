/* What the ranks tell the launcher. Each report is a line that a process writes to a pipe with one
 * call of write(): the number of the process, a word, and for some words a value. docs/launching.md
 * describes the protocol for programs. A line that makes no sense is ignored: it may be of a later
 * version of the library. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/launch/launch.h"
#include "cli/lib/numbers.h"

bool launch_reports_open(launch_reports *reports)
{
    int ends[2];
    *reports = (launch_reports){.from = -1, .to = -1};
    if (pipe(ends) != 0)
        return false;
    reports->from = ends[0];
    reports->to = ends[1];
    struct stat pipe;
    bool good = fstat(reports->to, &pipe) == 0;
    reports->inode = good ? pipe.st_ino : 0;
    /* The end for writing does not block either: a report is lost rather than a rank blocked. */
    for (int i = 0; i < 2; i++)
        good = good && fcntl(ends[i], F_SETFD, FD_CLOEXEC) == 0 &&
               fcntl(ends[i], F_SETFL, O_NONBLOCK) == 0;
    return good;
}

void launch_reports_close(launch_reports *reports)
{
    if (reports->from >= 0)
        close(reports->from);
    if (reports->to >= 0)
        close(reports->to);
    reports->from = reports->to = -1;
}

void launch_reports_reset(launch_reports *reports)
{
    reports->state_lost = false;
}

/* Returns whether a value can be part of a variable of the environment, and is short enough. */
static bool is_good_value(const char *value)
{
    const size_t length = strlen(value);
    for (size_t i = 0; i < length; i++)
        if (value[i] < ' ' || value[i] > '~')
            return false;
    return length > 0 && length < LAUNCH_MAX_VALUE;
}

static void take_report(launch_job *job, launch_rank *rank, const char *word, const char *value)
{
    launch_reports *reports = &job->reports;
    double seconds;
    if (strcmp(word, "member") == 0)
        rank->has_met = true;
    else if (strcmp(word, "restartable") == 0 && is_good_value(value))
        snprintf(reports->restart, sizeof reports->restart, "%s", value);
    else if (strcmp(word, "state-lost") == 0)
        reports->state_lost = true;
    else if (strcmp(word, "signal") == 0 && atoi(value) > 0)
        rank->asked_by = atoi(value);
    else if (strcmp(word, "grace") == 0 && cli_read_real(value, 0, LAUNCH_MAX_GRACE, &seconds) &&
             seconds > reports->grace)
        reports->grace = seconds;
}

/* Interprets one line. Reports of processes that were started before a restart are ignored. */
static void read_line(launch_job *job, char *line)
{
    char *word, *value;
    const long serial = strtol(line, &word, 10);
    if (word == line || *word != ' ')
        return;
    word++;
    value = word + strcspn(word, " ");
    if (*value != '\0')
        *value++ = '\0';
    for (int i = 0; i < job->started; i++)
        if (job->ranks[i].serial == serial)
            take_report(job, &job->ranks[i], word, value);
}

void launch_reports_read(launch_job *job)
{
    launch_reports *reports = &job->reports;
    ssize_t got;
    while ((got = read(reports->from, reports->bytes + reports->used,
                       sizeof reports->bytes - reports->used)) > 0) {
        reports->used += (size_t)got;
        char *start = reports->bytes, *const last = start + reports->used;
        for (char *end; (end = memchr(start, '\n', (size_t)(last - start))) != NULL;
             start = end + 1) {
            *end = '\0';
            read_line(job, start);
        }
        reports->used = (size_t)(last - start);
        if (reports->used == sizeof reports->bytes) /* a line that is too long */
            reports->used = 0;
        memmove(reports->bytes, start, reports->used);
    }
}
