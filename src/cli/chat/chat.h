/* tessera chat: a conversation with a model. Each line of standard input is a message. */
#ifndef TSR_CLI_CHAT_CHAT_H
#define TSR_CLI_CHAT_CHAT_H

#include <stdio.h>

#include "cli/inference/inference.h"

typedef struct chat_options {
    const char *system; /* the text of --system; NULL: none */
    bool ignore_end;
    bool show_reasoning;
    bool plain; /* messages have no format: the model continues them */
    inference_grammar_files grammar;
} chat_options;

extern chat_options chat_chosen;
/* Reads the arguments into chat_chosen and inference_chosen. Returns an exit code. */
int chat_options_read(int argc, char **argv);
/* Prints the lines of the command's help that describe its options. */
void chat_options_help(FILE *out);

/* Lines ---------------------------------------------------------------------------------------- */

/* A message. It is the same on all ranks. */
typedef struct chat_line {
    char *text; /* [size], followed by a zero byte; NULL: the input has ended */
    size_t size;
    int error; /* on rank 0: the errno with which the input has ended; 0: end of file */
} chat_line;

/* Reads the next message on rank 0 without a time limit, and sends it to all ranks. If a line ends
 * with a backslash, the message continues in the next line. Lines may contain zero bytes. The
 * caller must free line->text. */
tsr_status chat_line_read(tsr_comm *comm, chat_line *line);

/* The editor of lines, for terminals. chat_edit_begin returns whether there is one; it may be
 * called repeatedly. chat_edit_line returns a line with its end, which is valid until the next
 * call, or NULL at the end of the input or after an error, whose errno it gives (0: none). */
bool chat_edit_begin(void);
const char *chat_edit_line(const char *sign, size_t *size, int *error);
void chat_edit_end(void);

/* Commands ------------------------------------------------------------------------------------- */

typedef enum chat_command {
    CHAT_CLEAR,
    CHAT_REGEN,
    CHAT_SAVE,
    CHAT_HELP,
    CHAT_EXIT,
    CHAT_COMMANDS,
    CHAT_MESSAGE, /* the line is a message */
    CHAT_MISTAKE  /* the line begins like a command, but is none */
} chat_command;

/* Returns which command a line is, with the words that follow the command's name, or for a mistake
 * a sentence in problem[size]. */
chat_command chat_command_of(const chat_line *line, const char **argument, char *problem,
                             size_t size);

/* Conversations -------------------------------------------------------------------------------- */

typedef struct chat_entry {
    bool reply; /* of the model */
    char *text; /* [size], followed by a zero byte */
    size_t size;
} chat_entry;

/* The messages and replies so far: a reply follows each message. */
typedef struct chat_conversation {
    int32_t *ids; /* [count] */
    int64_t count, capacity;
    int64_t message, reply; /* where the ids of the last message and of its reply begin */
    chat_entry *entries;    /* [entry_count] */
    int entry_count;
} chat_conversation;

void chat_conversation_add_ids(chat_conversation *conversation, const int32_t *ids, int64_t count);
/* Adds a message with its ids, and an empty reply. */
void chat_conversation_add_message(chat_conversation *conversation, const char *text, size_t size,
                                   const int32_t *ids, int64_t count);
/* Adds to the text of the last reply. */
void chat_conversation_add_reply(chat_conversation *conversation, const char *text, size_t size);
/* Makes the last reply empty. */
void chat_conversation_drop_reply(chat_conversation *conversation);
void chat_conversation_clear(chat_conversation *conversation);
/* Writes the conversation to a new file as a line of JSON: {"messages": …}, or {"text": …} without
 * a format. Returns 0 or an errno, EEXIST if the file exists. */
int chat_conversation_save(const chat_conversation *conversation, const char *path);

#endif
