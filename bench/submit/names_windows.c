/* Gets the names of this machine and of its user from the environment, where Windows puts them. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/submit/traces.h"

static void write_variable(const char *variable, char name[BENCH_TRACE])
{
    const char *value = getenv(variable);
    snprintf(name, BENCH_TRACE, "%s", value != NULL ? value : "");
}

void bench_own_names(char machine[BENCH_TRACE], char user[BENCH_TRACE])
{
    write_variable("COMPUTERNAME", machine);
    write_variable("USERNAME", user);
}
