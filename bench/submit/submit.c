#include "bench/submit/submit.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/submit/traces.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/output.h"
#include "cli/lib/say.h"

#define MAX_COPIES 99 /* the most files of one device, driver and date; they get numbers */
#define PATH_TEXT 4096

/* Appends a text to a name of `size` bytes. Letters become lower case. Letters, digits, and points
 * behind these are kept; parts in parentheses are left out; a run of other characters becomes one
 * dash. */
static void append_slug(char *name, size_t size, const char *text)
{
    size_t used = strlen(name);
    int depth = 0;
    for (; *text != '\0' && used + 1 < size; text++) {
        const unsigned char c = (unsigned char)*text;
        depth += c == '(' ? 1 : 0;
        const bool inside = used > 0 && isalnum((unsigned char)name[used - 1]);
        const bool kept = depth == 0 && c < 0x80 && (isalnum(c) || (c == '.' && inside));
        if (c == ')' && depth > 0)
            depth--;
        if (kept)
            name[used++] = (char)tolower(c);
        else if (used > 0 && name[used - 1] != '-')
            name[used++] = '-';
    }
    while (used > 0 && (name[used - 1] == '-' || name[used - 1] == '.'))
        used--;
    name[used] = '\0';
}

void bench_submission_name(const bench_document *run, char name[BENCH_FILE_NAME])
{
    const bench_device_figures *device = &run->devices[0];
    const char *info = device->driver_info;
    char parts[3][60] = {"", "", ""};
    append_slug(parts[0], sizeof parts[0], device->name);
    append_slug(parts[1], sizeof parts[1], strcmp(device->type, "cpu") == 0 ? run->cpu : "");
    /* The driver's description of itself usually begins with its name. */
    if (!isalpha((unsigned char)info[0])) {
        append_slug(parts[2], sizeof parts[2], device->driver_name);
        snprintf(parts[2] + strlen(parts[2]), sizeof parts[2] - strlen(parts[2]), "%s",
                 info[0] != '\0' ? "-" : "");
    }
    append_slug(parts[2], sizeof parts[2], info);
    snprintf(name, BENCH_FILE_NAME, "%s%s%s--%s--%.10s", parts[0][0] != '\0' ? parts[0] : "unknown",
             parts[1][0] != '\0' ? "-on-" : "", parts[1],
             parts[2][0] != '\0' ? parts[2] : "unknown", run->time);
}

bool bench_submit_possible(const char *folder)
{
    char path[PATH_TEXT];
    const int length = snprintf(path, PATH_TEXT, "%s/submission.json", folder);
    if (folder[0] == '\0' || length >= PATH_TEXT) {
        errno = folder[0] == '\0' ? ENOENT : ENAMETOOLONG;
        return false;
    }
    return cli_output_possible(path);
}

/* Writes one result per line, so that differences between files can be read. */
static void write_lines(const json_t *document, FILE *out)
{
    const char *name, *gap = "{\n";
    json_t *member, *element;
    size_t i;
    json_object_foreach((json_t *)document, name, member)
    {
        fprintf(out, "%s\"%s\": ", gap, name);
        gap = ",\n";
        if (!json_is_array(member)) {
            cli_json_write_line(member, out);
            continue;
        }
        fputs("[", out);
        json_array_foreach(member, i, element)
        {
            fputs(i > 0 ? ",\n" : "\n", out);
            cli_json_write_line(element, out);
        }
        fputs("]", out);
    }
    fputs("\n}\n", out);
}

/* Writes the first path, without or with a number after the name, at which no file exists. On
 * failure sets errno. */
static bool find_free(const char *folder, const char *name, char path[PATH_TEXT])
{
    struct stat status;
    for (int copy = 1; copy <= MAX_COPIES; copy++) {
        char number[16] = "";
        if (copy > 1)
            snprintf(number, sizeof number, "-%d", copy);
        const int length = snprintf(path, PATH_TEXT, "%s/%s%s.json", folder, name, number);
        if (length < 0 || length >= PATH_TEXT) {
            errno = ENAMETOOLONG;
            return false;
        }
        if (lstat(path, &status) != 0)
            return errno == ENOENT;
    }
    errno = EEXIST;
    return false;
}

static int write_submission(const bench_document *run, const char *folder)
{
    char name[BENCH_FILE_NAME], path[PATH_TEXT];
    cli_output file;
    bench_submission_name(run, name);
    bool written = find_free(folder, name, path) && cli_output_begin(path, &file);
    if (written) {
        write_lines(run->root, file.file);
        written = cli_output_end_new(&file);
    }
    if (!written)
        return cli_failed("bench: --submit: cannot write '%s': %s", path, strerror(errno));
    cli_say("bench: wrote %s", path);
    return CLI_DONE;
}

/* Reports texts that contain the name of this machine or user: texts of drivers may contain
 * anything. */
static void check_names(const bench_document *run, bench_reasons *reasons)
{
    char machine[BENCH_TRACE], user[BENCH_TRACE];
    bench_own_names(machine, user);
    const char *text = bench_find_name(run->root, machine);
    if (text != NULL)
        bench_reason(reasons, "'%.80s' contains this machine's name, %.60s", text, machine);
    text = bench_find_name(run->root, user);
    if (text != NULL)
        bench_reason(reasons, "'%.80s' contains this user's name, %.60s", text, user);
}

static int submit_device(const json_t *run, size_t device, const char *folder)
{
    char problem[BENCH_PROBLEM];
    bench_document document;
    bench_reasons *reasons = cli_alloc(1, sizeof *reasons);
    int code = CLI_FAILED;
    if (!bench_document_take(bench_submission(run, device), "--submit", &document, problem)) {
        free(reasons);
        return cli_failed("bench: %s", problem);
    }
    bench_self_check(&document, reasons);
    check_names(&document, reasons);
    for (int i = 0; i < reasons->count; i++)
        cli_say("bench: --submit: %s: %s", document.devices[0].name, reasons->text[i]);
    if (reasons->count == 0)
        code = write_submission(&document, folder);
    else
        cli_say("bench: --submit: nothing is written for %s", document.devices[0].name);
    bench_document_free(&document);
    free(reasons);
    return code;
}

int bench_submit(const json_t *run, const char *folder)
{
    const size_t count = json_array_size(json_object_get(run, "devices"));
    int code = CLI_DONE;
    if (count == 0)
        return cli_failed("bench: --submit: the run has no device");
    for (size_t i = 0; i < count; i++)
        if (submit_device(run, i, folder) != CLI_DONE)
            code = CLI_FAILED;
    return code;
}
