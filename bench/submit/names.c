/* Gets the names of this machine and of its user on POSIX systems. */
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/submit/traces.h"

void bench_own_names(char machine[BENCH_TRACE], char user[BENCH_TRACE])
{
    const struct passwd *entry = getpwuid(geteuid());
    if (gethostname(machine, BENCH_TRACE) != 0)
        machine[0] = '\0';
    /* gethostname may cut a long name and leave out the terminating zero */
    machine[BENCH_TRACE - 1] = '\0';
    machine[strcspn(machine, ".")] = '\0';
    snprintf(user, BENCH_TRACE, "%s", entry != NULL ? entry->pw_name : "");
}
