#include "bench/cases/collective_peer.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench_config.h"

static const char *program(void)
{
    const char *chosen = getenv("TESSERA_BENCH_MPI");
    return chosen && *chosen ? chosen : BENCH_MPI_PEER;
}

bool collective_peer_exists(bench_context *context)
{
    return *program() || bench_fail(context, "--peer: this build of tessera has no program for "
                                             "MPI, because no MPI was found");
}

/* Parses what follows "size " in a line "size BYTES BATCH NANOSECONDS…" that the peer program
 * prints. */
static void read_samples(char *line, const collective_sizes *sizes,
                         collective_result results[COLLECTIVE_MAX_SIZES])
{
    char *rest = line;
    const uint64_t bytes = strtoull(rest, &rest, 10);
    for (int i = 0; i < sizes->count; i++) {
        collective_result *out = &results[i];
        if (sizes->bytes[i] != bytes)
            continue;
        out->is_there = true;
        out->batch = strtoull(rest, &rest, 10);
        while (out->samples < COLLECTIVE_MAX_SAMPLES && *rest != '\0')
            out->ns[out->samples++] = strtod(rest, &rest);
    }
}

typedef struct words {
    char version[128];
    /* The program's first line of output that is not a result and has a letter. If the program
     * fails, this line says why. */
    char other[256];
    bool complete;
} words;

static void read_words(FILE *from, const collective_sizes *sizes,
                       collective_result results[COLLECTIVE_MAX_SIZES], words *out)
{
    char line[64 + 24 * COLLECTIVE_MAX_SAMPLES];
    while (fgets(line, sizeof line, from)) {
        line[strcspn(line, "\n")] = '\0';
        bool has_letter = false;
        for (const char *c = line; *c != '\0'; c++)
            has_letter = has_letter || isalpha((unsigned char)*c);
        if (strncmp(line, "version ", 8) == 0)
            snprintf(out->version, sizeof out->version, "%.100s", line + 8);
        else if (strncmp(line, "size ", 5) == 0)
            read_samples(line + 5, sizes, results);
        else if (strcmp(line, "done") == 0)
            out->complete = true;
        else if (has_letter && out->other[0] == '\0')
            snprintf(out->other, sizeof out->other, "%.200s", line);
    }
}

bool collective_peer_run(bench_context *context, collective_kind kind, int ranks,
                         const collective_sizes *sizes, double seconds,
                         collective_result results[COLLECTIVE_MAX_SIZES], char *version,
                         size_t size)
{
    char list[12 * COLLECTIVE_MAX_SIZES] = "", command[1024 + sizeof list];
    words said = {0};
    for (int i = 0; i < sizes->count; i++)
        (void)snprintf(list + strlen(list), sizeof list - strlen(list), " %llu",
                       (unsigned long long)sizes->bytes[i]);
    (void)snprintf(command, sizeof command, "mpirun %s --oversubscribe -n %d '%s' %s %.6f%s 2>&1",
                   geteuid() == 0 ? "--allow-run-as-root" : "", ranks, program(),
                   collective_names[kind], seconds, list);
    memset(results, 0, COLLECTIVE_MAX_SIZES * sizeof *results);
    FILE *from = popen(command, "r");
    if (!from)
        return bench_fail(context, "--peer: mpirun: %s", strerror(errno));
    read_words(from, sizes, results, &said);
    if (pclose(from) != 0 || !said.complete)
        return bench_fail(context, "--peer: this command failed: %s: %s", command,
                          said.other[0] ? said.other : "it printed no error text");
    snprintf(version, size, "%s", said.version);
    return true;
}
