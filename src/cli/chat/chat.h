/* tessera chat: a conversation with a model. Each line of standard input is a message. */
#ifndef TSR_CLI_CHAT_CHAT_H
#define TSR_CLI_CHAT_CHAT_H

#include <stdio.h>

#include "cli/inference/inference.h"

typedef struct chat_options {
    const char *system; /* the text of --system; NULL: none */
    bool ignore_end;
    bool show_reasoning;
} chat_options;

extern chat_options chat_chosen;
/* Reads the arguments into chat_chosen and inference_chosen. Returns an exit code. */
int chat_options_read(int argc, char **argv);
/* Prints the lines of the command's help that describe its options. */
void chat_options_help(FILE *out);

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

#endif
