/* The commands that may be typed instead of a message. */
#include <ctype.h>
#include <string.h>

#include "cli/chat/chat.h"
#include "cli/lib/suggest.h"

static const struct {
    const char *name;
    bool takes_argument;
} commands[] = {[CHAT_CLEAR] = {"clear", false},
                [CHAT_REGEN] = {"regen", false},
                [CHAT_SAVE] = {"save", true},
                [CHAT_HELP] = {"help", false},
                [CHAT_EXIT] = {"exit", false}};

/* Writes the first word of a line without its slash. Returns false if it does not look like a
 * command: a slash and letters. */
static bool first_word(const chat_line *line, char *word, size_t size)
{
    size_t length = 1;
    if (line->size < 2 || line->text[0] != '/')
        return false;
    while (length < line->size && isalpha((unsigned char)line->text[length]))
        length++;
    const bool ends = length == line->size || strchr(" \t\n", line->text[length]) != NULL;
    if (length == 1 || !ends || (length < line->size && line->text[length] == '\0'))
        return false;
    snprintf(word, size, "%.*s", (int)(length - 1 < size ? length - 1 : size - 1), line->text + 1);
    return true;
}

chat_command chat_command_of(const chat_line *line, const char **argument, char *problem,
                             size_t size)
{
    char word[32], text[CLI_SUGGESTION_TEXT];
    cli_suggestion nearest = CLI_SUGGESTION(word);
    problem[0] = '\0';
    if (!first_word(line, word, sizeof word))
        return CHAT_MESSAGE;
    const char *after = line->text + 1 + strlen(word);
    *argument = after + strspn(after, " \t\n");
    for (int i = 0; i < CHAT_COMMANDS; i++) {
        cli_suggestion_offer(&nearest, commands[i].name);
        if (strcmp(commands[i].name, word) != 0)
            continue;
        if (commands[i].takes_argument == (**argument != '\0'))
            return (chat_command)i;
        if (commands[i].takes_argument)
            snprintf(problem, size, "missing FILE after /%s", word);
        else
            snprintf(problem, size,
                     "nothing may follow /%s, and the model does not get this line; with a space "
                     "before /%s it is a message",
                     word, word);
        return CHAT_MISTAKE;
    }
    snprintf(problem, size,
             "unknown command '/%s'; %s; with a space before it, the line is a message", word,
             nearest.name != NULL ? cli_suggestion_text(&nearest, "/", "help chat", text)
                                  : "/help lists them");
    return CHAT_MISTAKE;
}
