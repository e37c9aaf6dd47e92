/* tessera chat: a conversation with a model, a message for each line of standard input. */
#ifndef TSR_CLI_CHAT_CHAT_H
#define TSR_CLI_CHAT_CHAT_H

#include <stdio.h>

#include "cli/inference/inference.h"

typedef struct chat_options {
    const char *system; /* the system's message; NULL: none */
    tsr_chat_format format;
    bool ignore_end;
} chat_options;

extern chat_options chat_chosen;
/* Reads the arguments into chat_chosen and inference_chosen. Returns an exit code. */
int chat_options_read(int argc, char **argv);
/* Prints the options' part of the command's help. */
void chat_options_help(FILE *out);

/* A message, the same on all ranks. */
typedef struct chat_line {
    char *text; /* [size], followed by a zero byte; NULL: the input has ended */
    size_t size;
    int error; /* on rank 0: why the input has ended, as errno has it; 0: it has no more lines */
} chat_line;

/* Reads the next message on rank 0, as long as the person needs for it, and gives it to all ranks.
 * A line that ends with a backslash goes on in the next one. Lines may contain zero bytes. The
 * caller must free line->text. */
tsr_status chat_line_read(tsr_comm *comm, chat_line *line);

#endif
