/* Gets the names of this machine and of its user on POSIX systems. */
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/submit/traces.h"

void bench_own_names(char machine[BENCH_TRACE], char user[BENCH_TRACE])
{
    const struct passwd *entry = getpwuid(geteuid());
    char host[BENCH_TRACE];
    if (gethostname(host, sizeof host) != 0)
        host[0] = '\0';
    /* gethostname may cut a long name and leave out the terminating zero */
    host[sizeof host - 1] = '\0';
    snprintf(machine, BENCH_TRACE, "%.*s", (int)strcspn(host, "."), host);
    snprintf(user, BENCH_TRACE, "%s", entry != NULL ? entry->pw_name : "");
}
