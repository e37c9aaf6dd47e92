/* The line editor of tessera chat, by libedit. */
#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/chat/chat.h"
#include "cli/lib/memory.h"
#include "cli/lib/terminal.h"

#define LINES 1000 /* in the history */

static EditLine *editor;
static History *lines;
static char *prompt; /* in the locale's encoding */

static char *give_prompt(EditLine *of)
{
    (void)of;
    return prompt;
}

/* libedit converts what is typed by the locale. A terminal whose locale is not set gets UTF-8,
 * which other locales of one byte per character would not let through. */
static void use_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static bool create(void)
{
    HistEvent event;
    use_locale();
    lines = history_init();
    editor = lines != NULL ? el_init("tessera", stdin, stdout, stderr) : NULL;
    if (editor == NULL)
        return false;
    history(lines, &event, H_SETSIZE, LINES);
    history(lines, &event, H_SETUNIQUE, 1);
    el_set(editor, EL_PROMPT, give_prompt);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_HIST, history, lines);
    /* A signal first gives the terminal its usual settings back. */
    el_set(editor, EL_SIGNAL, 1);
    return true;
}

bool chat_edit_begin(void)
{
    const char *terminal = getenv("TERM");
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || terminal == NULL ||
        terminal[0] == '\0' || strcmp(terminal, "dumb") == 0)
        return false;
    if (editor == NULL && !create())
        chat_edit_end();
    return editor != NULL;
}

const char *chat_edit_line(const char *sign, size_t *size, int *error)
{
    HistEvent event;
    int count = 0;
    free(prompt);
    prompt = cli_localized(sign);
    errno = 0;
    const char *line = el_gets(editor, &count);
    *error = line == NULL && count < 0 ? errno : 0;
    if (line == NULL || count <= 0)
        return NULL;
    *size = (size_t)count;
    if (line[strspn(line, " \t\r\n")] != '\0')
        history(lines, &event, H_ENTER, line);
    return line;
}

void chat_edit_end(void)
{
    if (editor != NULL)
        el_end(editor);
    if (lines != NULL)
        history_end(lines);
    free(prompt);
    editor = NULL;
    lines = NULL;
    prompt = NULL;
}
