#include "bench/report/destination.h"

#include <errno.h>
#include <string.h>

#include "cli/lib/command.h"
#include "cli/lib/output.h"
#include "cli/lib/say.h"

static const char *const names[] = {[BENCH_AS_TEXT] = "text",
                                    [BENCH_AS_MARKDOWN] = "md",
                                    [BENCH_AS_CSV] = "csv",
                                    [BENCH_AS_JSON] = "json"};
#define FORMATS ((int)(sizeof names / sizeof *names))

/* Returns the number of the format with this name, or -1 if there is none. */
static int find_format(const char *name)
{
    for (int i = 0; i < FORMATS; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

bool bench_destination_read(void *user, const char *text, char *problem, size_t size)
{
    bench_destination *to = user;
    const int format = cli_output_is_standard(text) ? BENCH_AS_JSON : find_format(text);
    if (format >= 0) {
        if (to->chosen && to->format != (bench_format)format) {
            snprintf(problem, size, "names two formats, %s and %s", names[to->format],
                     names[format]);
            return false;
        }
        to->format = (bench_format)format;
        to->chosen = true;
        return true;
    }
    /* A file's name must contain '.' or '/', so that a misspelt format is not taken for one. */
    if (strpbrk(text, "./") == NULL) {
        snprintf(problem, size,
                 "takes text, md, csv, json, or a file whose name contains '.' or '/', not '%.40s'",
                 text);
        return false;
    }
    if (to->path != NULL) {
        snprintf(problem, size, "names two files, '%.80s' and '%.80s'", to->path, text);
        return false;
    }
    to->path = text;
    return true;
}

static int cannot_write(const char *command, const char *path)
{
    return cli_failed("%s: cannot write '%s': %s", command, path, strerror(errno));
}

int bench_destination_check(const char *command, bench_destination *to)
{
    if (to->json && to->chosen && to->format != BENCH_AS_JSON)
        return cli_usage_error("%s: --json and --output %s are two formats", command,
                               names[to->format]);
    if (to->json)
        to->format = BENCH_AS_JSON;
    if (to->path != NULL && !cli_output_possible(to->path))
        return cannot_write(command, to->path);
    return CLI_DONE;
}

static bench_format format_of(const char *path)
{
    const char *end = strrchr(path, '.');
    const int format = end != NULL ? find_format(end + 1) : -1;
    return format == BENCH_AS_MARKDOWN || format == BENCH_AS_CSV ? (bench_format)format
                                                                 : BENCH_AS_JSON;
}

static int write_file(const char *command, const char *path, bench_write *write, void *user)
{
    cli_output file;
    if (!cli_output_begin(path, &file))
        return cannot_write(command, path);
    write(user, format_of(path), file.file);
    return cli_output_end(&file) ? CLI_DONE : cannot_write(command, path);
}

int bench_destination_write(const char *command, const bench_destination *to, bench_write *write,
                            void *user)
{
    const int code = to->path != NULL ? write_file(command, to->path, write, user) : CLI_DONE;
    write(user, to->format, stdout);
    return code;
}
