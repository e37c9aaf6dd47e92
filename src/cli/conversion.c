#include "cli/conversion.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/lib/model.h"
#include "cli/lib/say.h"

#define MESSAGE 4096         /* the size of an error message */
#define EXIT_INTERRUPTED 130 /* the exit code of shells for a program that SIGINT has ended */

bool cli_conversion_read_type(void *user, const char *text, char *problem, size_t size)
{
    tsr_convert_params *params = user;
    const char *name;
    params->mixture = NULL;
    params->dtype = 0;
    for (int i = 0; (name = tsr_convert_mixture_at(i)) != NULL; i++)
        if (strcmp(name, text) == 0) {
            params->mixture = name;
            return true;
        }
    if (cli_read_matrix_dtype(&params->dtype, text, problem, size))
        return true;
    /* the mixtures belong before the end of the sentence, ", not '…'" */
    char *end = strstr(problem, ", not '");
    size_t used = end != NULL ? (size_t)(end - problem) : strlen(problem);
    for (int i = 0; (name = tsr_convert_mixture_at(i)) != NULL && used < size; i++)
        used += (size_t)snprintf(problem + used, size - used, ", %s", name);
    if (used < size)
        snprintf(problem + used, size - used, ", not '%.40s'", text);
    return false;
}

/* While a conversion runs ---------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static const char *running; /* the command */
static bool shows_progress, is_quiet;

static bool show_progress(void *user, uint64_t done, uint64_t total)
{
    static int shown = -1;
    const int percent = total > 0 ? (int)((double)done / (double)total * 100) : 100;
    (void)user;
    if (shows_progress && percent != shown)
        fprintf(stderr, "\r%3d %%%s", percent, done == total ? "\r     \r" : "");
    shown = percent;
    return interrupted == 0;
}

static void note(void *user, const char *sentence)
{
    (void)user;
    if (!is_quiet)
        cli_say("%s: %s", running, sentence);
}

/* Catches the signals that would end the tool before it has removed its temporary files. Ignores
 * SIGXFSZ, so that writing a file that becomes too large fails with an error. */
static void catch_signals(void)
{
    const struct sigaction action = {.sa_handler = interrupt}, ignored = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGXFSZ, &ignored, NULL);
}

/* Returns whether the conversion has failed because the destination exists. Errors of the system,
 * such as "File exists", have another status. */
static bool is_about_destination(tsr_status status)
{
    static const char ending[] = " exists";
    const char *error = tsr_last_error();
    const size_t length = strlen(error), end = sizeof ending - 1;
    return status == TSR_ERR_INVALID && length >= end && strcmp(error + length - end, ending) == 0;
}

/* Returns the end of the error's sentence: which option would help. */
static const char *help_for(tsr_status status)
{
    if (is_about_destination(status))
        return "; --force replaces it";
    return strstr(tsr_last_error(), "tokenizer") != NULL ? "; --no-tokenizer leaves it out" : "";
}

int cli_conversion_run(const char *command, const char *source, const char *destination,
                       const tsr_convert_params *params, bool quiet, tsr_convert_stats *stats)
{
    tsr_convert_params all = *params;
    all.progress = show_progress;
    all.note = note;
    running = command;
    is_quiet = quiet;
    shows_progress = !quiet && isatty(STDERR_FILENO);
    catch_signals();
    tsr_model_file *file = NULL;
    tsr_status status = tsr_model_file_open(source, &file);
    if (status == TSR_OK)
        status = tsr_model_convert(file, destination, &all, stats);
    tsr_model_file_close(&file);
    if (status == TSR_OK)
        return CLI_DONE;
    if (shows_progress)
        fputs("\r     \r", stderr);
    if (interrupted != 0)
        return EXIT_INTERRUPTED;
    char text[MESSAGE];
    static const char prefix[] = "convert: ";
    const char *error = tsr_last_error();
    error += strncmp(error, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    snprintf(text, sizeof text, "%s%s", error, help_for(status));
    return cli_failed_in(command, text);
}
