/* Documents: what a line of a data file, or a section of a text file, becomes.
 *
 *     data_lines.c     reads lines and sections, one after the other or at an offset
 *     data_document.c  the forms of a line: text, prompt and completion, messages, pairs
 *     data_chat.c      messages and the tokens that the model must produce
 *     data_tools.c     calls of tools in messages
 *     data_tokens.c    tokens with their weights, and problems with lines */
#ifndef TSR_CLI_FINETUNE_DATA_DOCUMENT_H
#define TSR_CLI_FINETUNE_DATA_DOCUMENT_H

#include <jansson.h>
#include <stdio.h>

#include "cli/lib/tools.h"
#include "tessera/tessera.h"

/* Lines (data_lines.c) ------------------------------------------------------------------------- */

#define DATA_MOST_LINE (UINT64_C(1) << 28) /* bytes of a line */

typedef struct data_lines {
    const char *path;
    FILE *file;
    bool is_text;    /* sections of text instead of lines */
    size_t section;  /* bytes of a section, about */
    uint64_t offset; /* of the last line or section that was read */
    uint64_t next;   /* of the one after it */
    uint64_t number; /* of the last one, counted from 1 while reading in order */
    char *text;      /* the last one, without its line break; a zero byte follows */
    size_t size, capacity;
} data_lines;

/* Opens a file, whose name decides about is_text. Returns false with errno set. */
bool data_lines_open(data_lines *lines, const char *path, int64_t context);
/* Reads the next one. Sets *more to false at the end of the file. Returns false with errno set, or
 * 0 in errno if the line is too long. */
bool data_lines_next(data_lines *lines, bool *more);
/* Makes the line or section at an offset the next one. */
bool data_lines_seek(data_lines *lines, uint64_t offset);
void data_lines_close(data_lines *lines);

/* Tokens and problems (data_tokens.c) ---------------------------------------------------------- */

typedef enum data_problem_kind {
    DATA_GOOD,
    DATA_NO_JSON,
    DATA_NO_FORM,  /* members, roles or their order are missing or wrong */
    DATA_EMPTY,    /* an empty line or text */
    DATA_NO_REPLY, /* nothing to train: no turn of the assistant */
    DATA_LONG,     /* longer than the context */
    DATA_PROBLEM_KINDS
} data_problem_kind;

typedef struct data_problem {
    data_problem_kind kind;
    char text[256];
} data_problem;

/* Sets a problem. Returns false. */
bool data_refuse(data_problem *problem, data_problem_kind kind, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

typedef struct data_document {
    int32_t *ids;
    float *weights; /* of the loss of predicting this token; 0: it is not trained */
    uint64_t count, capacity;
    bool divisible; /* text, which may be divided into pieces of the context's length */
} data_document;

void data_document_free(data_document *document);
/* Appends tokens with one weight. */
void data_document_add(data_document *document, const int32_t *ids, uint64_t count, float weight);
/* Returns how many tokens of the first `count` are predicted with a weight, all but the first. */
uint64_t data_document_trained(const data_document *document, uint64_t first, uint64_t count);

/* Documents (data_document.c) ------------------------------------------------------------------ */

/* How lines become documents. */
typedef struct data_form {
    const tsr_tokenizer *tokenizer;
    tsr_chat_format format; /* TSR_CHAT_MODEL: the tokenizer's */
    bool pairs, loss_on_all;
} data_form;

/* Makes the documents of a line: one or, of pairs, the chosen and the rejected one. The caller must
 * free both. Returns false with *problem set. */
bool data_document_read(const data_form *form, const data_lines *line, data_document out[2],
                        data_problem *problem);

/* Messages (data_chat.c) ----------------------------------------------------------------------- */

/* Appends a conversation. Replies of messages from `first` on are trained. `tools` may be NULL. */
bool data_chat_add(const data_form *form, const json_t *messages, size_t first, const json_t *tools,
                   data_document *out, data_problem *problem);

/* Tools (data_tools.c) ------------------------------------------------------------------------- */

/* Returns whether a chat format's calls of tools can be in training data. */
bool data_tools_possible(cli_tool_style style);
/* The tool of a call, and its id; NULL: it has none. */
const char *data_tools_name(const json_t *call);
const char *data_tools_id(const json_t *call);
/* Returns the arguments of a call of message `index`, which are an object or a string that has one,
 * for json_decref. Returns NULL with *problem set if something of the call is wrong. */
json_t *data_tools_arguments(cli_tool_style style, const json_t *calls, size_t number, size_t index,
                             data_problem *problem);
/* Appends the calls of message `index`, after its text. */
bool data_tools_calls(cli_tool_style style, const json_t *calls, size_t index, cli_text *out,
                      data_problem *problem);

#endif
