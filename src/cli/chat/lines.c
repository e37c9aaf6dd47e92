/* The messages of a conversation: rank 0 reads them, and all ranks get them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/chat/chat.h"
#include "cli/lib/memory.h"
#include "cli/lib/terminal.h"

/* The time that rank 0 may take to read a message, while the other ranks wait for it: ten years. */
#define PATIENCE_NS UINT64_C(315360000000000000)

static void prompt(const char *sign)
{
    if (!isatty(STDIN_FILENO))
        return;
    cli_put(stdout, sign);
    (void)cli_flush();
}

/* Appends a line without its end. */
static void append(chat_line *line, const char *next, size_t size)
{
    if (next[size - 1] == '\n') /* "\r\n" ends a line, too */
        size -= size > 1 && next[size - 2] == '\r' ? 2 : 1;
    line->text = cli_resize(line->text, line->size + size + 1, 1);
    memcpy(line->text + line->size, next, size);
    line->size += size;
    line->text[line->size] = '\0';
}

/* Appends a line of standard input. Returns false at the end of the input, and after an error,
 * which may cut off a line. */
static bool append_line(chat_line *line, const char *sign)
{
    char *next = NULL;
    size_t capacity = 0;
    if (chat_edit_begin()) {
        size_t size = 0;
        const char *edited = chat_edit_line(sign, &size, &line->error);
        if (edited != NULL)
            append(line, edited, size);
        return edited != NULL;
    }
    prompt(sign);
    errno = 0;
    const ssize_t length = getline(&next, &capacity, stdin);
    if (length < 0 || ferror(stdin))
        line->error = feof(stdin) ? 0 : errno;
    else
        append(line, next, (size_t)length);
    free(next);
    return length >= 0 && line->error == 0;
}

static void read_message(chat_line *line)
{
    const char *sign = "> ";
    while (append_line(line, sign) && line->size > 0 && line->text[line->size - 1] == '\\') {
        line->text[line->size - 1] = '\n';
        sign = "… ";
    }
    if (line->error != 0) { /* the message is not complete */
        free(line->text);
        line->text = NULL;
    }
}

tsr_status chat_line_read(tsr_comm *comm, chat_line *line)
{
    *line = (chat_line){0};
    const bool first = tsr_comm_rank(comm) == 0;
    if (first)
        read_message(line);
    int64_t size = line->text != NULL ? (int64_t)line->size : -1;
    const uint64_t timeout_ns = tsr_comm_set_timeout(comm, PATIENCE_NS);
    const tsr_status status = tsr_comm_broadcast(comm, &size, sizeof size, TSR_U8, 0, NULL);
    tsr_comm_set_timeout(comm, timeout_ns);
    if (status != TSR_OK || size < 0)
        return status;
    if (!first) {
        line->text = cli_alloc((size_t)size + 1, 1);
        line->size = (size_t)size;
    }
    return size > 0 ? tsr_comm_broadcast(comm, line->text, (uint64_t)size, TSR_U8, 0, NULL)
                    : TSR_OK;
}
