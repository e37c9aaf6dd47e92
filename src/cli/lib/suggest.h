/* Suggests a name for one that was mistyped. */
#ifndef TSR_CLI_LIB_SUGGEST_H
#define TSR_CLI_LIB_SUGGEST_H

#include <stddef.h>

/* The known name that is nearest to a mistyped one. Begin with CLI_SUGGESTION(word), and offer all
 * names. */
typedef struct cli_suggestion {
    const char *word; /* the mistyped name */
    const char *name; /* the nearest name so far; NULL: none is near enough */
    size_t edits;     /* the number of edits between the two */
} cli_suggestion;

#define CLI_SUGGESTION(mistyped) ((cli_suggestion){.word = (mistyped)})

/* Takes `name` as the nearest one if it is nearer than the names before it and near enough: at most
 * one edit for every three characters of the word, where an edit inserts, removes or replaces a
 * character, or exchanges two neighbours; or the word, of at least three characters, begins it. */
void cli_suggestion_offer(cli_suggestion *suggestion, const char *name);

#define CLI_SUGGESTION_TEXT 128
/* Returns "did you mean 'NAME'?" with `dashes` before the name or, if no name is near enough, "see
 * 'tessera HELP'". */
const char *cli_suggestion_text(const cli_suggestion *suggestion, const char *dashes,
                                const char *help, char text[CLI_SUGGESTION_TEXT]);

#endif
