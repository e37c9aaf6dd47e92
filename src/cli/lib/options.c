#include "cli/lib/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/say.h"
#include "cli/lib/suggest.h"
#include "cli/lib/terminal.h"

/* `argument` is the option as the user has written it, with its long name or its letter. */
static int store(const char *command, const cli_option *option, const char *argument,
                 const char *value)
{
    char problem[512] = "", named[64];
    if (argument[1] != '-')
        snprintf(named, sizeof named, "-%c", option->letter);
    else
        snprintf(named, sizeof named, "--%s", option->name);
    if (option->integer != NULL) {
        if (!cli_read_integer(value, (int64_t)option->low, (int64_t)option->high, option->integer))
            return cli_usage_error("%s: %s takes an integer from %.0f to %.0f, not '%s'", command,
                                   named, option->low, option->high, value);
    } else if (option->real != NULL) {
        if (!cli_read_real(value, option->low, option->high, option->real))
            return cli_usage_error("%s: %s takes a number from %g to %g, not '%s'", command, named,
                                   option->low, option->high, value);
    } else if (option->read != NULL) {
        if (!option->read(option->user, value, problem, sizeof problem))
            return cli_usage_error("%s: %s %s", command, named, problem);
    } else {
        *option->text = value;
    }
    return CLI_DONE;
}

static const cli_option *find(const cli_option *options, const char *name, size_t length)
{
    for (const cli_option *option = options; option->name != NULL; option++)
        if (strlen(option->name) == length && strncmp(option->name, name, length) == 0)
            return option;
    return NULL;
}

static const cli_option *find_letter(const cli_option *options, const char *argument)
{
    for (const cli_option *option = options; option->name != NULL; option++)
        if (option->letter != 0 && argument[1] == option->letter && argument[2] == '\0')
            return option;
    return NULL;
}

/* Returns the option that an argument such as "--size=64", "--size" or "-s" names. *value is the
 * value if it is part of the argument, otherwise NULL. */
static const cli_option *match(const cli_option *options, const char *argument, const char **value)
{
    *value = NULL;
    if (argument[1] != '-')
        return find_letter(options, argument);
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    *value = name[length] == '=' ? name + length + 1 : NULL;
    return find(options, name, length);
}

/* Refuses an option that does not exist, and suggests the one with the nearest name. */
static int unknown(const char *command, const cli_option *options, const char *argument)
{
    char word[64], help[64], text[CLI_SUGGESTION_TEXT];
    const char *name = argument + strspn(argument, "-");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(name, "="), name);
    snprintf(help, sizeof help, "help %s", command);
    cli_suggestion nearest = CLI_SUGGESTION(word);
    for (const cli_option *option = options; option->name != NULL; option++)
        cli_suggestion_offer(&nearest, option->name);
    cli_suggestion_offer(&nearest, "help");
    return cli_usage_error("%s: unknown option '%s'; %s", command, argument,
                           cli_suggestion_text(&nearest, "--", help, text));
}

int cli_options_read(const char *command, const cli_option *options, int argc, char **argv,
                     int max_words, const char **words, int *word_count)
{
    bool options_over = false;
    *word_count = 0;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i], *value;
        if (options_over || argument[0] != '-' || argument[1] == '\0') {
            if (*word_count == max_words)
                return cli_usage_error("%s: unexpected argument '%s'", command, argument);
            words[(*word_count)++] = argument;
            continue;
        }
        if (strcmp(argument, "--") == 0) {
            options_over = true;
            continue;
        }
        const cli_option *option = match(options, argument, &value);
        if (option == NULL)
            return unknown(command, options, argument);
        if (option->flag != NULL) {
            if (value != NULL)
                return cli_usage_error("%s: --%s takes no value", command, option->name);
            *option->flag = true;
            continue;
        }
        if (value == NULL && i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0)
            value = argv[++i];
        if (value == NULL)
            return cli_usage_error("%s: missing value: %s %s", command, argument, option->argument);
        int code = store(command, option, argument, value);
        if (code != CLI_DONE)
            return code;
    }
    return CLI_DONE;
}

/* Writes the left column of an option's help, such as "  --output, -o FILE". */
static int write_label(const cli_option *option, char *text, size_t size)
{
    char letter[] = {',', ' ', '-', option->letter, '\0'};
    return snprintf(text, size, "  --%s%s%s%s", option->name, option->letter != 0 ? letter : "",
                    option->argument != NULL ? " " : "",
                    option->argument != NULL ? option->argument : "");
}

void cli_options_help(FILE *out, const cli_option *options)
{
    char label[128];
    int width = 0, columns = cli_columns(out);
    /* the explanation is below the option instead of beside it */
    bool below = columns > 0 && columns < 60;
    for (const cli_option *option = options; option->name != NULL; option++) {
        int length = write_label(option, label, sizeof label);
        width = length > width ? length : width;
    }
    fputs("\noptions:\n", out);
    for (const cli_option *option = options; option->name != NULL; option++) {
        write_label(option, label, sizeof label);
        size_t size = (size_t)width + strlen(option->help) + sizeof label;
        char *text = cli_alloc(size, 1);
        if (below)
            snprintf(text, size, "%s\n      %s\n", label, option->help);
        else
            snprintf(text, size, "%-*s  %s\n", width, label, option->help);
        cli_wrap(out, text);
        free(text);
    }
}
